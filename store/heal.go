package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	healAgain  = 30 * time.Second // how long a key is left alone after it was deleted: what writes it may do so again
	healWithin = time.Second      // the deletion
	maxHealed  = 1000             // keys that are remembered for that
)

var errForeign = errors.New("a key held a value that no limit wrote, and was deleted")

// foreign is a charge of which a key holds a value that no limit wrote.
type foreign struct {
	charge  limit.Charge
	penalty bool // a key of its penalty
}

// keys are those that may hold the value.
func (f *foreign) keys() []string {
	if f.penalty {
		return limit.PunishKeys(&f.charge)
	}
	return []string{f.charge.Key}
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
	healed := map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-r.foreign:
			key, now := f.keys()[0], r.cfg.Now()
			if last, known := healed[key]; known && now.Sub(last) < healAgain {
				continue
			}
			if len(healed) >= maxHealed {
				clear(healed)
			}
			healed[key] = now
			r.guard(func() { r.healOne(ctx, &f) })
		}
	}
}

// healOne looks at a counter again, which another sidecar may have healed, and deletes it.
func (r *Redis) healOne(ctx context.Context, f *foreign) {
	if !f.penalty {
		look := limit.Request{
			Charges:   []limit.Charge{{Key: f.charge.Key, Limit: f.charge.Limit, Op: limit.Peek, Cost: 1}},
			Decisions: make([]limit.Decision, 1),
		}
		r.Peek(ctx, &look)
		if look.Decisions[0].Reason != limit.ReasonForeign {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	err := unlink(ctx, r.clientOf(&f.charge), f.keys())
	if err != nil {
		r.cfg.OnError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(f.keys())
	r.healed.Add(1)
	r.cfg.OnError(redis.ReasonWrong, errForeign)
}
