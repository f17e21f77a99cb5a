// Package denials remembers counters that refused, each until its retry-after: that answers further requests exactly,
// without a call. Once a second one of them is a question to the store all the same, because tokens may have been given
// back elsewhere.
package denials

import (
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/internal/fair"
)

// askAgain is the time from the last question about a counter to the next, and how long what was left of another one is
// repeated.
const askAgain = int64(time.Second)

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
	start time.Time
	none  bool // nothing is remembered

	mu        sync.Mutex // guards all below
	table     *fair.Table[memo]
	forgotten [64]int64 // by n[1]%64: since start, when something was last forgotten; earlier questions are too old
	stats     Stats     // Hits, Misses, Questions
}

// New makes an empty one for at most so many counters, below 1 for none, that take at most so many bytes; 0: no bound.
func New(entries int, bytes int64) *Denials {
	start := time.Now().Add(-time.Hour)
	return &Denials{start: start, none: entries < 1, table: fair.New[memo](entries, bytes)}
}

// since is an instant in ns since start.
func (d *Denials) since(at time.Time) int64 { return at.Sub(d.start).Nanoseconds() }

// Refuse decides a request that is known to be refused: by an enforced charge, and each charge that is made even if the
// request is refused is known as well. Its other charges are answered as they were seen within the last second. Where
// the store has to be asked, also because the next question about what is known is due, nothing is decided.
func (d *Denials) Refuse(r *limit.Request, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	refused, known := false, int64(0)
	for i := range r.Charges {
		c := &r.Charges[i]
		decision, answer := d.memo(c).answer(c, d.since(now))
		if answer == unknown || answer == due {
			refused = false
			break
		}
		if answer == denied {
			known++
			refused = refused || c.Mode == limit.Enforced
		}
		r.Decisions[i] = decision
	}
	if refused {
		d.stats.Hits += known
	} else {
		clear(r.Decisions)
	}
	return refused
}

// Known fills in charges of a request that are known to be refused, and reports whether an enforced one is among them.
// It is called before the request is sent: quotas are not filled in then, because they refuse only together; and if a
// second has passed since the last question about one of the charges, this request is the question and nothing is
// filled in. It is called again after that: then what is known answers charges that are undecided, quotas too.
func (d *Denials) Known(r *limit.Request, now time.Time, again bool) (refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asks, known := false, int64(0)
	for i := range r.Charges {
		switch d.fill(&r.Charges[i], &r.Decisions[i], d.since(now), again) {
		case denied:
			known++
		case due:
			asks = true
		}
	}
	if asks {
		clear(r.Decisions)
		known = 0
	}
	d.stats.Hits += known
	if !again {
		d.stats.Misses += int64(len(r.Charges)) - known
	}
	return limit.Refuses(r.Charges, r.Decisions)
}

// fill is Known of one charge.
func (d *Denials) fill(c *limit.Charge, decision *limit.Decision, now int64, again bool) answer {
	if decision.Outcome != limit.Undecided || c.Mode == limit.Quota && !again {
		return unknown
	}
	m := d.memo(c)
	found, result := m.answer(c, now)
	switch {
	case result == denied || result == due && again:
		*decision = found
		return denied
	case result == due:
		m.asked = max(now, m.sent)
		d.stats.Questions++
	}
	return result
}

// nameOf is the name under which a charge is remembered. One with a penalty is by its cool-down: other refusals have to
// be recorded.
func (d *Denials) nameOf(c *limit.Charge) fair.Name {
	if c.Penalty != nil {
		return d.table.Name(c.PenaltyKey)
	}
	return d.table.Name(c.Key)
}

// memo is what is known that may answer a charge, nil if there is nothing.
func (d *Denials) memo(c *limit.Charge) *memo {
	if entries, _, _ := d.table.Stats(); entries == 0 || c.Op != limit.Spend && c.Op != limit.Peek {
		return nil
	}
	if e := d.table.Get(d.nameOf(c)); e != nil {
		return &e.Value
	}
	return nil
}

// Learn takes in the replies to the charges of a request that was sent, or to a part of it. Sent is an instant before
// that.
func (d *Denials) Learn(r *limit.Request, sent, now time.Time) {
	if d.none {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := limit.Refuses(r.Charges, r.Decisions)
	for i := range r.Charges {
		c, decision := &r.Charges[i], &r.Decisions[i]
		switch {
		case decision.Cached || decision.Held:
		case c.Op == limit.Refund || c.Op == limit.Debit: // it may have come through even without a reply
			d.forget(c.Key, now)
		case decision.Outcome != limit.Undecided:
			d.learn(c, decision, refused, d.since(sent), d.since(now))
		}
	}
	d.table.Trim(d.since(now))
}

// learn takes in the reply to one charge. Refused is of its request.
func (d *Denials) learn(c *limit.Charge, decision *limit.Decision, refused bool, sent, now int64) {
	n := d.nameOf(c)
	e, denies, room := d.table.Get(n), denies(c, decision), refused && hasRoom(c, decision)
	switch {
	case sent < d.forgotten[n[1]%64]:
		d.table.Drop(e) // the reply shows nothing about now, but what was known may be over
	case e != nil || denies || room:
		e = d.table.At(n, c.Class)
		until := e.Value.learn(c, decision, sent, denies, room)
		d.table.Keep(e, until, now, 0, false)
	}
}

// Forget drops what is known of these counters and cool-downs, and what is on its way.
func (d *Denials) Forget(keys []string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		d.forget(key, now)
	}
}

func (d *Denials) forget(key string, now time.Time) {
	n := d.table.Name(key)
	d.forgotten[n[1]%64] = d.since(now)
	d.table.Drop(d.table.Get(n))
}

// Clear forgets everything, and what is on its way.
func (d *Denials) Clear(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.forgotten {
		d.forgotten[i] = d.since(now)
	}
	d.table.Clear()
}

// Stats is what was counted so far.
func (d *Denials) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Entries, s.Bytes, s.Drops = d.table.Stats()
	return s
}
