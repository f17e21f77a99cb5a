// Package leases spends tokens that were taken ahead: of a counter that is asked about often, a request beside the
// next one lends some, and the decisions that follow are made here. What is lent is charged already, so nothing is
// admitted beyond the limit; what is not spent goes back. The package makes no calls and starts no goroutine: the
// caller sends what Around and Ended return.
package leases

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	parts      = 4                      // a lease is at most this part of what is left, divided by the live sidecars
	longest    = 200 * time.Millisecond // a lease lives no longer
	drift      = 1000                   // and this part less, since the clocks here may be slower than the server's
	lastMoment = 20 * time.Millisecond  // before its end what is left goes back
	idleAfter  = 50 * time.Millisecond  // likewise where nothing is spent
	pause      = 20 * time.Millisecond  // after a request that lent nothing
	maxCharges = 8                      // of a request that is decided here
	span       = 100 * time.Millisecond // in which decisions are counted, and for which tokens are lent
	hotFrom    = 4                      // decisions within span
)

// Stats is what Leases count.
type Stats struct {
	Keys      int64 `metric:"lease_counters" help:"Counters that tokens are held of."`
	Tokens    int64 `metric:"lease_tokens" help:"Tokens that are on lease and not spent."`
	Decisions int64 `metric:"lease_decisions_total" help:"Charges decided by tokens on lease, without asking Redis."`
	Asks      int64 `metric:"lease_calls_total" help:"Requests that lease tokens; less than the decisions they save."`
	Granted   int64 `metric:"lease_granted_total" help:"Tokens leased."`
	Returned  int64 `metric:"lease_returned_total" help:"Tokens returned."`
	Expired   int64 `metric:"lease_expired_total" help:"Tokens of leases that ended unspent: they count as spent."`
	Drops     int64 `metric:"lease_drops_total" help:"Hot counters without leases: another one has their place."`
}

// Leases holds tokens. It is safe for concurrent use.
type Leases struct {
	live  func(domain string) int
	start time.Time
	seed  maphash.Seed

	mu    sync.Mutex // guards all below, and the leases
	slots [8192]slot
	held  map[*lease]bool
	stats Stats // but for Keys and Tokens
}

// New makes one that holds nothing. Live returns how many sidecars share the counters of a domain.
func New(live func(domain string) int) *Leases {
	return &Leases{live: live, start: time.Now(), seed: maphash.MakeSeed(), held: map[*lease]bool{}}
}

// leasable reports whether tokens of a charge's counter may be held: not where a refusal has to be recorded, a token is
// promised for later, or other charges decide with it.
func leasable(c *limit.Charge) bool {
	l := &c.Limit
	return c.Op == limit.Spend && c.Mode == limit.Enforced && c.Lease > 0 && c.Penalty == nil && c.MaxWait == 0 &&
		l.Calendar == nil && !l.Algorithm.KeepsLog() && l.Count > 0
}

// isGate reports whether a charge only asks whether a client is in a cool-down of its domain.
func isGate(c *limit.Charge) bool { return c.Op == limit.Peek && c.Cost == 0 && c.Penalty != nil }

// Spend decides a request if tokens of all its charges are held and there are enough. Else it changes nothing.
func (l *Leases) Spend(r *limit.Request, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 || len(r.Charges) > maxCharges {
		return false
	}
	var leases [maxCharges]*lease
	at := l.instant(now)
	for i := range r.Charges {
		c := &r.Charges[i]
		leases[i] = l.lease(c.Key)
		if !leasable(c) && !isGate(c) || !leases[i].take(c, at) {
			for j := range i {
				leases[j].rest += r.Charges[j].Cost
			}
			return false
		}
	}
	for i := range r.Charges {
		leases[i].slot.count(at.mono, r.Charges[i].Cost)
		leases[i].decide(&r.Charges[i], &r.Decisions[i], at)
	}
	l.stats.Decisions += int64(len(r.Charges))
	return true
}

// Around returns what is to be sent in one call with a request: in front of it what goes back of its counters, behind
// it what lends again. Each is a request of its own with one charge. Granted is called once with each of the second
// kind.
func (l *Leases) Around(r *limit.Request, now time.Time) (before, after []*limit.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.instant(now)
	for i := range r.Charges {
		c := &r.Charges[i]
		if held := l.lease(c.Key); held != nil && !held.pass {
			if held.rest > held.spent { // it is mostly asked about beside charges that are not leased
				held.slot.pause = at.mono + int64(span)
			}
			before = l.end(held, before)
		}
		if leasable(c) || isGate(c) {
			after = l.ask(c, at.mono, after)
		}
	}
	return before, after
}

// Granted takes in what became of a request that lends: granted, refused, undecided or never sent. It is called once,
// when that is known, however late. Sent is an instant before the call was sent.
func (l *Leases) Granted(after *limit.Request, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, d, at := &after.Charges[0], &after.Decisions[0], l.instant(sent)
	found, _ := l.slot(c.Key)
	l.stats.Granted += d.Charged
	if d.Unknown { // it may have run
		l.stats.Expired += c.Cost
	}
	switch {
	case found.wanted != after: // it was reset
		l.stats.Expired += d.Charged
	case d.Charged > 0:
		found.wanted, found.pause = nil, 0
		l.hold(found, newLease(c, d, at))
	default:
		found.wanted, found.pause = nil, at.mono+int64(pause)
	}
}

// Learn takes in the reply to a request itself. A domain's penalty that refuses nothing is not asked about again for
// as long as a lease lives, where it is asked often; another reply about it ends that.
func (l *Leases) Learn(r *limit.Request, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.instant(sent)
	for i := range r.Charges {
		c, d := &r.Charges[i], &r.Decisions[i]
		if c.Penalty == nil || d.Held {
			continue
		}
		if held := l.lease(c.Key); held != nil {
			l.end(held, nil)
		}
		found, hash := l.slot(c.Key)
		passes := isGate(c) && d.Outcome == limit.Allowed && !d.Penalized
		if passes && found.hash == hash && found.hot(at.mono) {
			pass := newLease(c, d, at)
			pass.pass, pass.life = true, longest
			l.hold(found, pass)
		}
	}
}

// Ended returns what is to be sent now: what is left of leases that are over soon or not used. Call it every 10 ms.
func (l *Leases) Ended(now time.Time) []*limit.Request {
	at := l.instant(now)
	return l.endAll(func(h *lease) bool {
		return h.age(at) >= h.life-lastMoment || at.mono-h.used >= int64(idleAfter)
	})
}

// Clear ends all leases, and returns what is to be sent.
func (l *Leases) Clear() []*limit.Request { return l.endAll(func(*lease) bool { return true }) }

func (l *Leases) endAll(over func(*lease) bool) (ended []*limit.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for held := range l.held {
		if over(held) {
			ended = l.end(held, ended)
		}
	}
	return ended
}

// End forgets the leases of counters that are reset, and voids grants on their way. It is called before the reset and
// after it.
func (l *Leases) End(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if held := l.lease(key); held != nil {
			l.stats.Expired += held.rest
			held.rest, held.spent = 0, 0
			l.end(held, nil)
		}
		if found, hash := l.slot(key); found.hash == hash {
			found.wanted = nil
		}
	}
}

// Lost counts what could not be returned: by a request that was to bring it back, and perhaps did not run.
func (l *Leases) Lost(r *limit.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := &r.Charges[0]; c.Op != limit.Spent {
		l.stats.Returned -= c.Cost
		l.stats.Expired += c.Cost
	}
}

// Stats is what was counted so far.
func (l *Leases) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Keys = int64(len(l.held))
	for h := range l.held {
		s.Tokens += h.rest
	}
	return s
}
