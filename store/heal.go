package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

var errForeign = errors.New("a key held a value that no limit wrote, and was deleted")

// heal deletes keys of a charge, of its counter or its penalty, if one of them holds a value that no limit wrote: the
// next charge begins a new counter. It looks again, because others may have healed them. While another request heals,
// or where the time is short, it is left to a later one.
func (q *question) heal(ctx context.Context, c *limit.Charge, keys ...string) {
	r := q.store
	if !r.healing.TryLock() {
		return
	}
	defer r.healing.Unlock()
	ctx, cancel := context.WithDeadline(ctx, q.due)
	defer cancel()
	if !slices.ContainsFunc(keys, func(key string) bool { return r.isForeign(ctx, c, key) }) {
		return
	}
	err := unlink(ctx, r.clientOf(c), keys)
	if err != nil {
		r.cfg.OnError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(keys)
	r.healed.Add(1)
	r.cfg.OnError(redis.ReasonWrong, errForeign)
}

// isForeign asks for a counter alone, or for the length of a list.
func (r *Redis) isForeign(ctx context.Context, c *limit.Charge, key string) bool {
	if key != c.Key {
		_, err := r.clientOf(c).Run(ctx, key, "LLEN", key)
		return redis.Reason(err) == redis.ReasonWrong
	}
	charges := []limit.Charge{{Key: c.Key, Limit: c.Limit, Op: limit.Peek, Cost: 1}}
	look := limit.Request{Charges: charges, Decisions: make([]limit.Decision, 1)}
	r.Peek(ctx, &look)
	return look.Decisions[0].Reason == limit.ReasonForeign
}
