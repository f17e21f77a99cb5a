package leases

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// instant is a reading of the monotonic clock, in ns since start, and of the wall clock, in ns. The monotonic one
// stops while the machine is suspended, the wall clock may be set: of what has passed the longer one counts.
type instant struct{ mono, wall int64 }

func (l *Leases) instant(now time.Time) instant {
	return instant{now.Sub(l.start).Nanoseconds(), now.UnixNano()}
}

// lease is what is held of one counter. A pass is of a domain's penalty: it holds no tokens, but lets a client pass
// that was in no cool-down.
type lease struct {
	slot      *slot
	key       string
	limit     limit.Limit
	rest      int64 // tokens that are left
	spent     int64
	at, ends  int64   // µs on the server: when it was granted, and its end
	sent      instant // before it was asked for
	life      time.Duration
	used      int64 // ns since start
	remaining int64 // in the store, when it was granted
	reset     time.Duration
	pass      bool
}

// newLease makes a lease of what was granted. Its end is counted from before the call was sent.
func newLease(c *limit.Charge, d *limit.Decision, sent instant) *lease {
	life := min(d.Wait, longest)
	return &lease{
		key: c.Key, limit: c.Limit, rest: d.Charged, at: d.At, ends: d.At + d.Wait.Microseconds(), sent: sent,
		life: life - life/drift, used: sent.mono, remaining: d.Remaining, reset: d.ResetAfter,
	}
}

// age is how long ago it was asked for.
func (h *lease) age(now instant) time.Duration {
	return time.Duration(max(now.mono-h.sent.mono, now.wall-h.sent.wall))
}

// take takes the tokens of a charge, and reports whether there were enough.
func (h *lease) take(c *limit.Charge, now instant) bool {
	if h == nil || h.age(now) >= h.life || h.rest < c.Cost || h.limit != c.Limit || h.key != c.Key {
		return false
	}
	h.rest -= c.Cost
	return true
}

// decide enters what was taken.
func (h *lease) decide(c *limit.Charge, d *limit.Decision, now instant) {
	age := h.age(now)
	h.used = now.mono
	h.spent += c.Cost
	*d = limit.Decision{
		Outcome: limit.Allowed, Held: true, Charged: c.Cost, Remaining: h.remaining + h.rest,
		At: h.at + age.Microseconds(), ResetAfter: max(h.reset-age, 0),
	}
}

// hold begins a lease.
func (l *Leases) hold(at *slot, h *lease) {
	h.slot, at.lease = at, h
	l.held[h] = true
}

// end ends a lease and appends what is to be sent: of a bucket what was spent and what was not, because what is lent
// lowers its cap; of a window a refund of what was not, which ends with it.
func (l *Leases) end(h *lease, to []*limit.Request) []*limit.Request {
	delete(l.held, h)
	h.slot.lease = nil
	bucket := h.limit.Algorithm.Fills()
	if bucket && h.spent > 0 {
		to = append(to, h.request(limit.Spent, h.spent))
	}
	if h.rest == 0 {
		return to
	}
	l.stats.Returned += h.rest
	if bucket {
		return append(to, h.request(limit.Returned, h.rest))
	}
	return append(to, h.request(limit.Refund, h.rest))
}

// request is one that ends a part of the lease.
func (h *lease) request(op limit.Op, tokens int64) *limit.Request {
	return single(limit.Charge{Key: h.key, Limit: h.limit, Op: op, Cost: tokens, Until: h.ends})
}

// single is a request of one charge.
func single(c limit.Charge) *limit.Request {
	return &limit.Request{Charges: []limit.Charge{c}, Decisions: make([]limit.Decision, 1)}
}

// slot is the place of a counter by its hash. It counts how often the counter is asked about.
type slot struct {
	hash      uint64
	decisions float64        // within span: older ones have faded
	tokens    float64        // likewise
	counted   int64          // when that was, in ns since start
	pause     int64          // nothing is lent before, in ns since start
	wanted    *limit.Request // that lends, and is on its way
	lease     *lease
}

// slot is the place of a key. The key has it if its hash is there.
func (l *Leases) slot(key string) (s *slot, hash uint64) {
	hash = maphash.String(l.seed, key)
	return &l.slots[hash%uint64(len(l.slots))], hash
}

// lease returns the lease of a key, or nil.
func (l *Leases) lease(key string) *lease {
	if s, hash := l.slot(key); s.hash == hash {
		return s.lease
	}
	return nil
}

// ask counts a decision that is made in the store, and appends a request that lends if it is time for one.
func (l *Leases) ask(c *limit.Charge, now int64, to []*limit.Request) []*limit.Request {
	s, hash := l.slot(c.Key)
	if s.hash != hash {
		if s.lease != nil || s.wanted != nil || s.hot(now) {
			l.stats.Drops++
			return to
		}
		*s = slot{hash: hash}
	}
	s.count(now, c.Cost)
	tokens := int64(min(s.tokens, float64(c.Lease)))
	if isGate(c) || !s.hot(now) || s.wanted != nil || now < s.pause || tokens < 1 {
		return to
	}
	l.stats.Asks++
	s.wanted = single(limit.Charge{
		Key: strings.Clone(c.Key), Limit: c.Limit, Op: limit.Lend, Cost: tokens, Class: c.Class,
		Parts: parts * int64(max(l.live(c.Share), 1)),
	})
	return append(to, s.wanted)
}

// count counts a decision about so many tokens.
func (s *slot) count(now, tokens int64) {
	rest := s.rest(now)
	s.decisions, s.tokens, s.counted = s.decisions*rest+1, s.tokens*rest+float64(tokens), now
}

// rest is the part of what was counted that has not faded.
func (s *slot) rest(now int64) float64 { return max(1-float64(max(now-s.counted, 0))/float64(span), 0) }

// hot reports whether enough decisions were made lately.
func (s *slot) hot(now int64) bool { return s.decisions*s.rest(now) > hotFrom-1 }
