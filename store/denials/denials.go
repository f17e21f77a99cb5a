// Package denials remembers counters that refused, each until its retry-after: that answers further requests exactly,
// without a call. Once a second one of them is a question to the store all the same, because tokens may have been given
// back elsewhere.
package denials

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/internal/fair"
)

// askAgain is the time from the last question about a counter to the next, and how long what was left of another one is
// repeated.
const askAgain = int64(time.Second)

// Config sets up Denials. Entries is needed.
type Config struct {
	Entries int   // counters remembered at most
	Bytes   int64 // memory that they take at most; 0: no bound
}

// Stats is what Denials count.
type Stats struct {
	Entries   int64 // counters remembered now
	Bytes     int64 // memory that they take, estimated from above
	Hits      int64 // charges answered here
	Misses    int64 // charges that were not, of requests that came to Known
	Questions int64 // charges that were known to be refused, and asked about again
	Drops     int64 // counters forgotten before their time, because there was no room
}

// Denials is a cache of refusals. It is safe for concurrent use.
//
// The end of a denial is counted from before its question was sent, so a denial kept here ends no later than the real
// one.
type Denials struct {
	start     time.Time
	table     *fair.Table[memo]
	forgotten [64]atomic.Int64 // by name: since start, when something was last forgotten; earlier questions are too old
	hits      atomic.Int64
	misses    atomic.Int64
	questions atomic.Int64
}

// New makes an empty one.
func New(c Config) *Denials {
	return &Denials{start: time.Now().Add(-time.Hour), table: fair.New[memo](c.Entries, c.Bytes)}
}

// Refuse decides a request that is known to be refused: by an enforced charge, and each charge that is made even if the
// request is refused is known as well. Its other charges are answered as they were seen within the last second. Where
// the store has to be asked, also because the next question about what is known is due, nothing is decided.
func (d *Denials) Refuse(r *limit.Request, now time.Time) bool {
	if entries, _, _ := d.table.Stats(); entries == 0 {
		return false
	}
	refused, known := false, int64(0)
	for i := range r.Charges {
		c := &r.Charges[i]
		decision, answer := d.look(c, now, false)
		if answer == unknown || answer == due {
			clear(r.Decisions)
			return false
		}
		if answer == denied {
			known++
			refused = refused || c.Mode == limit.Enforced
		}
		r.Decisions[i] = decision
	}
	if !refused {
		clear(r.Decisions)
		return false
	}
	d.hits.Add(known)
	return true
}

// Known fills in charges of a request that are known to be refused, and reports whether an enforced one is among them.
// It is called before the request is sent, with Decisions cleared: quotas are not filled in then, because they refuse
// only together; and if a second has passed since the last question about one of the charges, this request is the
// question and nothing is filled in. It is called again when charges were left undecided, with their Reason: then what
// is known answers them, quotas too.
func (d *Denials) Known(r *limit.Request, now time.Time) (refused bool) {
	first := !slices.ContainsFunc(r.Decisions, func(d limit.Decision) bool { return d.Reason != "" })
	asks, known := false, int64(0)
	for i := range r.Charges {
		answer := d.fill(&r.Charges[i], &r.Decisions[i], now, first)
		asks = asks || answer == due
		if answer == denied {
			refused = refused || r.Charges[i].Mode == limit.Enforced
			known++
		}
	}
	if asks {
		clear(r.Decisions)
		refused, known = false, 0
	}
	d.hits.Add(known)
	if first {
		d.misses.Add(int64(len(r.Charges)) - known)
	}
	return refused
}

// fill is Known of one charge.
func (d *Denials) fill(c *limit.Charge, decision *limit.Decision, now time.Time, first bool) answer {
	if decision.Outcome != limit.Undecided || first && c.Mode == limit.Quota {
		return unknown
	}
	found, answer := d.look(c, now, first)
	if answer == due && !first {
		answer = denied // the store was asked
	}
	if answer == denied {
		*decision = found
	}
	return answer
}

// answer is what is known about a charge.
type answer uint8

const (
	unknown answer = iota
	denied         // it is refused
	due            // likewise, but the next question is due
	seen           // another charge refuses the request, and this one had room within the last second
)

// look answers a charge by what is known. With claim, the caller that finds a question due is the one that asks it.
func (d *Denials) look(c *limit.Charge, now time.Time, claim bool) (decision limit.Decision, result answer) {
	if c.Op != limit.Spend && c.Op != limit.Peek {
		return limit.Decision{}, unknown
	}
	d.table.With(keyOf(c), func(_ fair.Name, e *fair.Entry[memo]) {
		if e == nil {
			return
		}
		m := &e.Value
		at := max(d.since(now), m.sent) // another caller may have learned this after now was read
		decision, result = m.answer(c, at)
		if claim && result == due {
			m.asked = at
			d.questions.Add(1)
		}
	})
	return decision, result
}

// since is an instant in ns since start.
func (d *Denials) since(at time.Time) int64 { return at.Sub(d.start).Nanoseconds() }

// keyOf is the key under which a charge is remembered. One with a penalty is by its cool-down: other refusals have to
// be recorded.
func keyOf(c *limit.Charge) string {
	if c.Penalty != nil {
		return c.PenaltyKey
	}
	return c.Key
}

// Learn takes in the replies to the charges of a request that was sent, or to a part of it. Sent is an instant before
// that.
func (d *Denials) Learn(r *limit.Request, sent, now time.Time) {
	a := answered{sent: d.since(sent), now: d.since(now), refused: limit.Refuses(r.Charges, r.Decisions)}
	for i := range r.Charges {
		c, decision := &r.Charges[i], &r.Decisions[i]
		returns := c.Op == limit.Refund || c.Op == limit.Debit
		if decision.Cached || decision.Held || decision.Outcome == limit.Undecided && !returns {
			continue
		}
		if returns { // it may have come through even without a reply
			d.Forget([]string{c.Key}, now)
			continue
		}
		d.table.With(keyOf(c), func(n fair.Name, e *fair.Entry[memo]) { d.learn(n, e, c, decision, a) })
	}
}

// answered is when the reply to a request came.
type answered struct {
	sent    int64 // since start, an instant before the question was sent
	now     int64 // since start
	refused bool  // the request as a whole
}

// learn takes in the reply to one charge. Its stripe is locked.
func (d *Denials) learn(n fair.Name, e *fair.Entry[memo], c *limit.Charge, decision *limit.Decision, a answered) {
	denies, room := denies(c, decision), a.refused && hasRoom(c, decision)
	switch late := a.sent < d.lastForgotten(n).Load(); {
	case late && e != nil && (!denies || decision.Charged != 0):
		d.table.Drop(e) // it shows nothing about now, but that what was known is over
	case !late && (e != nil || denies || room):
		e = d.table.At(n, c.Class)
		until := e.Value.learn(c, decision, a, denies, room)
		d.table.Keep(e, until, a.now, 0, false)
	}
}

// lastForgotten is when something like a name was last forgotten.
func (d *Denials) lastForgotten(n fair.Name) *atomic.Int64 {
	return &d.forgotten[n[1]%uint64(len(d.forgotten))]
}

// Forget drops what is known of these counters and cool-downs, and what is on its way.
func (d *Denials) Forget(keys []string, now time.Time) {
	for _, key := range keys {
		d.table.With(key, func(n fair.Name, e *fair.Entry[memo]) {
			d.lastForgotten(n).Store(d.since(now))
			if e != nil {
				d.table.Drop(e)
			}
		})
	}
}

// Clear forgets everything, and what is on its way.
func (d *Denials) Clear(now time.Time) {
	for i := range d.forgotten {
		d.forgotten[i].Store(d.since(now))
	}
	d.table.Clear()
}

// Stats is what was counted so far.
func (d *Denials) Stats() Stats {
	s := Stats{Hits: d.hits.Load(), Misses: d.misses.Load(), Questions: d.questions.Load()}
	s.Entries, s.Bytes, s.Drops = d.table.Stats()
	return s
}
