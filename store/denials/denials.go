// Package denials remembers counters that refused, each until its retry-after: that answers further requests exactly,
// without a call. Once a second one of them is a question to the store all the same, because tokens may have been given
// back elsewhere.
package denials

import (
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
		c, at := &r.Charges[i], now.Sub(d.start).Nanoseconds()
		decision, answer := d.look(c, at, false)
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
	first, asks, known, at := true, false, int64(0), now.Sub(d.start).Nanoseconds()
	for i := range r.Decisions {
		first = first && r.Decisions[i].Reason == ""
	}
	for i := range r.Charges {
		c := &r.Charges[i]
		if r.Decisions[i].Outcome != limit.Undecided || first && c.Mode == limit.Quota {
			continue
		}
		decision, answer := d.look(c, at, first)
		asks = asks || answer == due && first
		if answer == denied || answer == due && !first {
			r.Decisions[i] = decision
			refused = refused || c.Mode == limit.Enforced
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

// answer is what is known about a charge.
type answer uint8

const (
	unknown answer = iota
	denied         // it is refused
	due            // likewise, but the next question is due
	seen           // another charge refuses the request, and this one had room within the last second
)

// look answers a charge by what is known. With claim, the caller that finds a question due is the one that asks it.
func (d *Denials) look(c *limit.Charge, now int64, claim bool) (decision limit.Decision, result answer) {
	if c.Op != limit.Spend && c.Op != limit.Peek {
		return limit.Decision{}, unknown
	}
	d.table.With(keyOf(c), func(_ fair.Name, e *fair.Entry[memo]) {
		if e != nil {
			decision, result = e.Value.answer(c, now)
		}
		if e != nil && claim && result == due {
			e.Value.asked = now
			d.questions.Add(1)
		}
	})
	return decision, result
}

// keyOf is the key under which a charge is remembered. One with a penalty is by its cool-down: other refusals have to be
// recorded.
func keyOf(c *limit.Charge) string {
	if c.Penalty != nil {
		return c.PenaltyKey
	}
	return c.Key
}

// Learn takes in the replies to the charges of a request that was sent, or to a part of it. Sent is an instant before
// that.
func (d *Denials) Learn(r *limit.Request, sent, now time.Time) {
	a := answered{sent: sent.Sub(d.start).Nanoseconds(), now: now.Sub(d.start).Nanoseconds(), refused: limit.Refuses(r.Charges, r.Decisions)}
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
	denies := decision.Outcome == limit.Refused && (c.Penalty == nil || decision.Penalized && !c.DryRun())
	room := a.refused && c.Penalty == nil && decision.Outcome == limit.Allowed && decision.Charged == 0
	late := a.sent < d.lastForgotten(n).Load() // it shows nothing about now, but that what is known is over
	if e == nil && (late || !denies && !room) {
		return
	}
	if e == nil {
		e = d.table.At(n, c.Class)
	}
	m := &e.Value
	switch {
	case decision.At < m.at && a.sent < m.sent+askAgain: // older; one that was asked for a second later is newer though the clock was set back
	case late && denies && decision.Charged == 0:
	default:
		m.note(decision, a)
		if m.until = 0; denies && !late {
			m.deny(c, decision)
		}
		if m.seen = 0; room && !late {
			m.seen = a.sent
		}
	}
	d.table.Keep(e, max(m.until, m.asked+2*askAgain), a.now, 0, false)
}

// lastForgotten is when something like a name was last forgotten.
func (d *Denials) lastForgotten(n fair.Name) *atomic.Int64 {
	return &d.forgotten[n[1]%uint64(len(d.forgotten))]
}

// Forget drops what is known of these counters and cool-downs, and what is on its way.
func (d *Denials) Forget(keys []string, now time.Time) {
	for _, key := range keys {
		d.table.With(key, func(n fair.Name, e *fair.Entry[memo]) {
			d.lastForgotten(n).Store(now.Sub(d.start).Nanoseconds())
			if e != nil {
				d.table.Drop(e)
			}
		})
	}
}

// Clear forgets everything, and what is on its way.
func (d *Denials) Clear(now time.Time) {
	for i := range d.forgotten {
		d.forgotten[i].Store(now.Sub(d.start).Nanoseconds())
	}
	d.table.Clear()
}

// Stats is what was counted so far.
func (d *Denials) Stats() Stats {
	s := Stats{Hits: d.hits.Load(), Misses: d.misses.Load(), Questions: d.questions.Load()}
	s.Entries, s.Bytes, s.Drops = d.table.Stats()
	return s
}
