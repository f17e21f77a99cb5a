package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	healAgain  = 30 * time.Second // how long a key is left alone after it was deleted: what writes it may do so again
	healWithin = time.Second      // the look at a counter and the deletion
	maxForeign = 1000             // keys that are remembered for that
)

var errForeign = errors.New("the key holds a value that no limit wrote, so it is deleted")

// healing is the keys that hold a value that no limit wrote.
type healing struct {
	mu     sync.Mutex           // guards since
	since  map[string]time.Time // when a key was found to hold such a value
	healed atomic.Int64
}

// begins reports whether a key has to be healed now.
func (h *healing) begins(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, known := h.since[key]
	if known && now.Sub(since) < healAgain {
		return false
	}
	if h.since == nil || len(h.since) >= maxForeign {
		h.since = map[string]time.Time{}
	}
	h.since[strings.Clone(key)] = now
	return true
}

// healForeign deletes counters that hold foreign values, in the background: the next charge begins a new one.
func (r *Redis) healForeign(charges []limit.Charge, decisions []limit.Decision) {
	for i := range decisions {
		if decisions[i].Reason != limit.ReasonForeign || !r.healing.begins(charges[i].Key, r.now()) {
			continue
		}
		c := charges[i]
		r.background.run(func(ctx context.Context) { r.heal(ctx, c) })
	}
}

// heal looks again which of the charge's keys is foreign, because another sidecar may have deleted it, and deletes that.
func (r *Redis) heal(ctx context.Context, c limit.Charge) {
	penalty := c.Penalty != nil
	if r.isForeign(ctx, c, false) {
		r.deleteForeign(ctx, r.clientOf(&c), []string{c.Key})
	} else if penalty && r.isForeign(ctx, c, true) {
		r.deleteForeign(ctx, r.clientOf(&c), limit.PunishKeys(&c))
	}
}

// isForeign asks whether a foreign value keeps a charge from being decided. Nothing is charged.
func (r *Redis) isForeign(ctx context.Context, c limit.Charge, penalty bool) bool {
	c.Op, c.Mode, c.Cost, c.Each, c.MaxWait = limit.Peek, limit.Enforced, 1, false, 0
	if !penalty {
		c.Penalty, c.PenaltyKey = nil, ""
	}
	request := limit.Request{Charges: []limit.Charge{c}, Decisions: make([]limit.Decision, 1)}
	r.Peek(ctx, &request)
	return request.Decisions[0].Reason == limit.ReasonForeign
}

// healKeys deletes the keys of a penalty, of which one is foreign.
func (r *Redis) healKeys(client *redis.Client, keys []string) {
	if r.healing.begins(keys[0], r.now()) {
		r.background.run(func(ctx context.Context) { r.deleteForeign(ctx, client, keys) })
	}
}

func (r *Redis) deleteForeign(ctx context.Context, client *redis.Client, keys []string) {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	err := unlink(ctx, client, keys)
	if err != nil {
		r.onError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(keys)
	r.healing.healed.Add(1)
	r.onError(redis.ReasonWrong, errForeign)
}
