package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// healWithin is how long a look at a key and its deletion may take.
const healWithin = time.Second

var errForeign = errors.New("a key held a value that no limit wrote, and was deleted")

// foreign is keys of which one holds a value that no limit wrote: the counter of a charge, or the lists of its penalty.
type foreign struct {
	charge limit.Charge
	keys   []string
}

// noteForeign has keys healed in the background. Where many wait for that, the next request about them notes them again.
func (r *Redis) noteForeign(c *limit.Charge, keys []string) {
	select {
	case r.foreign <- foreign{*c, keys}:
	default:
	}
}

// heal deletes keys that hold foreign values until the context ends: the next charge begins a new counter.
func (r *Redis) heal(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-r.foreign:
			r.cfg.Main.Guard(func() { r.healOne(ctx, &f) })
		}
	}
}

// healOne looks at the keys again, which may be healed since, and deletes them.
func (r *Redis) healOne(ctx context.Context, f *foreign) {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	if !slices.ContainsFunc(f.keys, func(key string) bool { return r.isForeign(ctx, &f.charge, key) }) {
		return
	}
	err := unlink(ctx, r.clientOf(&f.charge), f.keys)
	if err != nil {
		r.cfg.OnError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(f.keys)
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
