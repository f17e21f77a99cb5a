package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

const (
	healAfter  = 30 * time.Second // how long a counter is left alone that a foreign value keeps from counting
	maxForeign = 1000             // counters that are remembered for that
)

// foreign are the counters of calls that failed because of a foreign value under one of their keys.
type foreign struct {
	mu     sync.Mutex           // guards since
	since  map[string]time.Time // when a call about the key failed first
	healed atomic.Int64
}

// noteForeign takes in that one of these counters holds a foreign value. One that was noted so before, long enough ago,
// is looked at alone.
func (r *Redis) noteForeign(charges []limit.Charge) {
	f, now := &r.foreign, r.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil || len(f.since) >= maxForeign {
		f.since = map[string]time.Time{}
	}
	for i := range charges {
		c := &charges[i]
		since, known := f.since[c.Key]
		switch {
		case !known:
			f.since[strings.Clone(c.Key)] = now
		case now.Sub(since) >= healAfter:
			delete(f.since, c.Key)
			alone := *c
			alone.Key, alone.Share, alone.PenaltyKey = strings.Clone(c.Key), strings.Clone(c.Share),
				strings.Clone(c.PenaltyKey)
			r.background.run(func() { r.main.Guard(func() { r.heal(alone) }) })
		}
	}
}

// heal deletes the counter of a charge, or its penalty, if it cannot be read. The next charge begins a new one.
func (r *Redis) heal(c limit.Charge) {
	counter, key := c, c.Key
	counter.Penalty, counter.PenaltyKey = nil, ""
	if !r.isForeign(&counter) {
		key = c.PenaltyKey
		if c.Penalty == nil || !r.isForeign(&c) {
			return
		}
	}
	n, _ := r.place(&c)
	_, err := n.Ask(r.dialing, key, "UNLINK", key)
	if err != nil {
		r.onError(fleet.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop([]string{key})
	r.foreign.healed.Add(1)
}

// isForeign asks whether a foreign value keeps a charge from being decided. Nothing is charged.
func (r *Redis) isForeign(c *limit.Charge) bool {
	ctx, cancel := context.WithTimeout(context.Background(), r.dialing)
	defer cancel()
	var d [1]limit.Decision
	r.Usage(ctx, []limit.Charge{*c}, d[:])
	return d[0].Reason == fleet.ReasonWrong
}
