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
// until the server has it. Until endGuard none is lent of them again.
func (h *holdings) release(ctx context.Context, t *trip) {
	for i := range t.charges {
		l := t.near[i]
		if l == nil || t.held[i].of != nil || !h.guard(t, l, &t.charges[i]) {
			continue
		}
		for range releaseTries {
			if !h.returns(l, &t.charges[i]) || !h.await(ctx, l) {
				break
			}
		}
	}
}

// guard reports whether what is held could change the server's answer to a charge, and lets no more be lent then.
func (h *holdings) guard(t *trip, l *holding, c *limit.Charge) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Op != limit.Refund {
		cost := max(c.Cost, 0)
		room := l.hasRoom(cost+h.room(), h.instant())
		l.asked += cost
		if room {
			return false
		}
	}
	l.guards++
	t.guarded = append(t.guarded, l)
	return true
}

// endGuard lets tokens be lent again, after the server has decided a request.
func (h *holdings) endGuard(t *trip) {
	if len(t.guarded) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, l := range t.guarded {
		l.guards--
		t.guarded[i] = nil
	}
	t.guarded = t.guarded[:0]
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
	return left-l.asked >= n
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
		h.ask(&back)
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

// await waits for the lease that is on its way, and reports whether it has come.
func (h *holdings) await(ctx context.Context, l *holding) bool {
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
	patience := time.NewTimer(h.redis.allowance(ctx) / 2)
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
