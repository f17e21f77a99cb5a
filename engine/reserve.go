package engine

import (
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// maxReserved is for how many counters reservations are kept at once.
const maxReserved = 100_000

// reservations are what post-paid requests took in advance at this sidecar, until their real cost settles it. A cost without a reservation is
// charged in full: of a request that was refused, or whose reservation time has given back.
type reservations struct {
	mu      sync.Mutex // guards all below
	held    map[string]*reserved
	room    room
	dropped int64 // reservations that were not kept, because there were too many; they stay charged beside the cost
}

// reserved is the reservations on one counter.
type reserved struct {
	class   uint32
	count   int64
	tokens  int64     // that they took together
	until   int64     // the last µs, on the store's clock, at which something can be given back
	expires time.Time // when time has given all of it back, on this engine's clock
}

// settle changes charges of a cost whose request has a reservation: to what is above the reservation, or to a refund of what is
// left of it.
func (e *Engine) settle(v *Verdict) {
	for i := range v.Match.Terms {
		c := &v.Match.Charges[i]
		if v.Match.Terms[i].Effect.Reserve == 0 || c.Op != limit.Debit {
			continue
		}
		took, until, ok := e.reserved.take(c.Key, e.cfg.Now())
		if !ok {
			continue
		}
		c.Cost -= took
		v.Match.Terms[i].Settled = took
		if c.Cost < 0 {
			c.Op, c.Cost, c.Until = limit.Refund, -c.Cost, until
		}
	}
}

// reserve notes what an admitted request took in advance.
func (e *Engine) reserve(v *Verdict) {
	for i := range v.Match.Terms {
		d, c := &v.Decisions[i], &v.Match.Charges[i]
		if v.Match.Terms[i].Effect.Reserve > 0 && c.Op == limit.Spend && d.Outcome == limit.Allowed && d.Charged > 0 {
			e.reserved.hold(c, limit.RefundUntil(c.Limit, d), e.cfg.Now(), d.ResetAfter)
		}
	}
}

// hold keeps one reservation more.
func (r *reservations) hold(c *limit.Charge, until int64, now time.Time, reset time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held[c.Key]
	if held == nil {
		if !r.room.take(c.Class, c.Key) {
			r.tidyLocked(now)
			if !r.room.take(c.Class, c.Key) {
				r.dropped++
				return
			}
		}
		held = &reserved{class: c.Class}
		r.held[c.Key] = held
	}
	if now.After(held.expires) {
		held.count, held.tokens = 0, 0
	}
	held.count, held.tokens = held.count+1, held.tokens+c.Cost
	held.until, held.expires = max(held.until, until), now.Add(reset)
}

// take ends one reservation, and reports whether there is one. What it took is the mean of all on its counter: the rule may have reserved
// another number for some of them.
func (r *reservations) take(key string, now time.Time) (tokens, until int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held[key]
	if held == nil {
		return 0, 0, false
	}
	tokens = held.tokens / held.count
	held.count, held.tokens = held.count-1, held.tokens-tokens
	if held.count <= 0 || now.After(held.expires) {
		r.forgetLocked(key, held)
	}
	return tokens, held.until, !now.After(held.expires)
}

// tidyLocked forgets some of what is over: a look at all of them would hold up every post-paid request.
func (r *reservations) tidyLocked(now time.Time) {
	const looks = 16
	n := 0
	for key, held := range r.held {
		if now.After(held.expires) {
			r.forgetLocked(key, held)
		}
		if n++; n >= looks {
			return
		}
	}
}

func (r *reservations) forgetLocked(key string, held *reserved) {
	delete(r.held, key)
	r.room.give(held.class, key)
}

func (r *reservations) stats(s *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.ReservationsDropped = r.dropped
}
