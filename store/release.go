package store

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// releaseTries is how often a request waits for calls about one holding before it asks the server: one may be under way, and returning is the next.
const releaseTries = 3

// release returns what is held of the counters that the server is asked about next, where that could change its answer: to the server it is gone. It waits
// until the server has it, but no longer than a part of the patience. Until endGuard nothing is lent of them again.
func (h *holdings) release(ctx context.Context, t *trip) {
	var until time.Time
	for i := range t.charges {
		l := t.near[i]
		if l == nil || t.held[i].of != nil || !h.guard(t, i, l) {
			continue
		}
		if until.IsZero() {
			until = time.Now().Add(h.redis.allowance(ctx) / 2)
		}
		for range releaseTries {
			if !h.returns(l, &t.charges[i]) || !h.await(l, time.Until(until)) {
				break
			}
		}
	}
}

// guardPart is a charge that the server decides though tokens of its counter are held.
type guardPart struct {
	of   *holding
	n    int64 // what it asks for
	lend bool  // more may be lent meanwhile
}

// guard notes that the server decides a charge, and reports whether what is held could change its answer. Then nothing more is lent until endGuard.
func (h *holdings) guard(t *trip, i int, l *holding) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(t.guards) == 0 {
		t.guards = grow(t.guards, len(t.charges))
	}
	c := &t.charges[i]
	g := guardPart{of: l}
	if c.Op != limit.Refund {
		g.n = max(c.Cost, 0)
		g.lend = l.hasRoom(g.n+h.room(), h.instant())
	}
	l.flight += g.n
	if !g.lend {
		l.guards++
	}
	t.guards[i] = g
	return !g.lend
}

// endGuard takes in what the server decided, and lets tokens be lent again.
func (h *holdings) endGuard(t *trip) {
	if len(t.guards) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, g := range t.guards {
		l, d := g.of, &t.decisions[i]
		if l == nil {
			continue
		}
		l.flight -= g.n
		if !g.lend {
			l.guards--
		}
		if d.At >= l.server && d.Outcome != limit.Undecided && !d.Cached {
			left, _ := limit.Left(&l.state, &l.limit, d.At)
			l.less = left - d.Remaining
		}
	}
	h.tellLeft(t)
	clear(t.guards)
	t.guards = t.guards[:0]
}

// tellLeft adds what is held to what the server said is left. The caller holds the lock.
func (h *holdings) tellLeft(t *trip) {
	now := h.instant()
	for i, g := range t.guards {
		if d := &t.decisions[i]; g.of != nil && d.Outcome == limit.Allowed && !d.Cached && d.At >= g.of.server {
			d.Remaining = min(d.Remaining+g.of.left(now), g.of.limit.Capacity())
		}
	}
}

// returns begins to return what is held, and reports whether there is something to wait for.
func (h *holdings) returns(l *holding, c *limit.Charge) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	switch {
	case l.asking || l.ended:
		return l.asking
	case c.Op == limit.Refund:
		return h.reportLocked(l, c, now)
	case l.left(now) == 0:
		return false
	}
	h.askLocked(l, now, true)
	return true
}

// reportLocked tells the server before a refund what it has to know, and reports whether that is something. A bucket gives back no more than it knows to be spent. A
// window counts what is lent as spent, and would give that back as well; a refund with an end is of tokens that are known to be spent.
func (h *holdings) reportLocked(l *holding, c *limit.Charge, now instant) bool {
	fills, unknown := l.limit.Algorithm.Fills(), int64(0)
	switch {
	case fills:
		unknown = l.lots[0].spent + l.lots[1].spent
	case c.Until == 0:
		unknown = l.left(now)
	}
	if unknown > 0 {
		h.askLocked(l, now, !fills)
	}
	return unknown > 0
}

// hasRoom reports whether the server has so many tokens, as far as is known here.
func (l *holding) hasRoom(n int64, now instant) bool {
	left, _ := limit.Left(&l.state, &l.limit, l.server+microsUp(now.since(l.sent)))
	if l.asking {
		left -= l.wants
	}
	return left-l.less-l.flight >= n
}

// returnLocked returns what is held of a counter of which nothing is held any more: a call put it back, or brought it.
func (h *holdings) returnLocked(l *holding) {
	if !l.asking && l.lots[0].held+l.lots[1].held > 0 {
		h.askLocked(l, h.instant(), true)
	}
}

// cameLate returns what the server lent by a reply that came too late, unless a counter was reset since: it may be that one. It must not block.
func (h *holdings) cameLate(a *limit.Ask, resets int64, c *fleet.Call, err error) {
	if err != nil {
		return
	}
	g, err := limit.ReadGrant(c.Reply.Data)
	if err != nil || g.Tokens == 0 || resets != h.resets.Load() || !h.calls.begin() {
		return
	}
	h.granted.Add(g.Tokens)
	h.returned.Add(g.Tokens)
	back := limit.Ask{Key: a.Key, Limit: a.Limit, Reports: [2]limit.Report{{Epoch: g.Epoch, Returned: g.Tokens}}}
	go func() {
		defer h.calls.done()
		h.redis.main.Guard(func() { h.ask(&back) })
	}()
}

// tellHeld tells each charge that took something of a holding what is left after all of them.
func (t *trip) tellHeld(now instant) {
	for i, p := range t.held {
		if p.of != nil {
			p.of.tell(&t.decisions[i], p.n, now)
		}
	}
}

// tellBack adds what a request puts back to what is left, for each charge on the same counter.
func (t *trip) tellBack() {
	for i, p := range t.held {
		if d := &t.decisions[i]; p.of != nil && d.Held && p.of.back > 0 {
			d.Remaining = min(d.Remaining+p.of.back, p.of.limit.Capacity())
		}
	}
	for _, p := range t.held {
		if p.of != nil {
			p.of.back = 0
		}
	}
}

// await waits for the lease that is on its way, at most so long, and reports whether it has come.
func (h *holdings) await(l *holding, most time.Duration) bool {
	h.mu.Lock()
	if !l.asking {
		h.mu.Unlock()
		return true
	}
	if l.arrived == nil {
		l.arrived = make(chan struct{})
	}
	arrived := l.arrived
	h.mu.Unlock()
	patience := time.NewTimer(most)
	defer patience.Stop()
	select {
	case <-arrived:
		return true
	case <-patience.C:
		return false
	}
}

func hasQuota(charges []limit.Charge) bool {
	for i := range charges {
		if charges[i].Mode == limit.Quota {
			return true
		}
	}
	return false
}
