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

// foreign is a charge of which a key holds a value that no limit wrote.
type foreign struct {
	charge  limit.Charge
	penalty bool // a key of its penalty
}

// noteForeign has a key healed in the background. Where many wait for that, the next request about it notes it again.
func (r *Redis) noteForeign(c *limit.Charge, penalty bool) {
	select {
	case r.foreign <- foreign{*c, penalty}:
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
			r.guard(func() { r.healOne(ctx, &f) })
		}
	}
}

// healOne looks at the key again, which may be healed since, and deletes it.
func (r *Redis) healOne(ctx context.Context, f *foreign) {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	client, keys, isForeign := r.clientOf(&f.charge), []string{f.charge.Key}, r.isForeign(ctx, f.charge)
	if f.penalty {
		keys = limit.PunishKeys(&f.charge)
		isForeign = slices.ContainsFunc(keys, func(key string) bool {
			kind, err := client.Run(ctx, key, "TYPE", key)
			return err == nil && kind != "list" && kind != "none"
		})
	}
	if !isForeign {
		return
	}
	err := unlink(ctx, client, keys)
	if err != nil {
		r.cfg.OnError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(keys)
	r.healed.Add(1)
	r.cfg.OnError(redis.ReasonWrong, errForeign)
}

// isForeign asks for a counter alone.
func (r *Redis) isForeign(ctx context.Context, c limit.Charge) bool {
	c = limit.Charge{Key: c.Key, Limit: c.Limit, Op: limit.Peek, Cost: 1}
	look := limit.Request{Charges: []limit.Charge{c}, Decisions: make([]limit.Decision, 1)}
	r.Peek(ctx, &look)
	return look.Decisions[0].Reason == limit.ReasonForeign
}
