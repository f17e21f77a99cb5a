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

// askAgain is the time between two questions about a counter, and how long what was left of another one is repeated.
const askAgain = int64(time.Second)

// Stats is what Denials count.
type Stats struct {
	Entries int64 `metric:"denial_cache_entries" compat:"localcache.entryCount,gauge" help:"Spent counters remembered."`
	Bytes   int64 `metric:"denial_cache_bytes" help:"Memory that the remembered counters take, estimated from above."`
	Hits    int64 `metric:"denial_cache_hits_total" compat:"localcache.hitCount" help:"Charges refused without Redis."`
	// of requests that came to Known
	Misses    int64 `compat:"localcache.missCount" help:"Charges that no remembered counter refused."`
	Questions int64 `metric:"denial_cache_questions_total" help:"Known denials asked about again, once a second each."`
	Drops     int64 `metric:"denial_cache_drops_total" compat:"localcache.evacuateCount" help:"Denials dropped early."`
}

// Denials is a cache of refusals. It is safe for concurrent use. The end of a denial is counted from before its
// question was sent, so it ends here no later than in the store.
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
// Before the request is sent quotas are not filled in, because they refuse only together; and where the next question
// is due, this request is it, and nothing is filled in. Again, after that, it answers all that is undecided.
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

// Learn takes in the replies to a request, or to a part of it. Sent is an instant before it was sent.
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

// memo is what is known about one counter or cool-down. Times are ns since start, but for at.
type memo struct {
	limit     limit.Limit   // that refused; of a cool-down and of a counter that had room it does not matter
	maxWait   time.Duration // of the charge that was refused
	cost      int64         // likewise
	until     int64         // it is refused until then; 0: it is not
	retry     int64         // when it could pass without a wait
	remaining int64
	reset     int64
	at        int64 // µs on the server, of the newest reply
	sent      int64 // an instant before that
	asked     int64 // when it was last asked about
	seen      int64 // when it last had room on a request that another charge refused
	cools     bool  // it is a cool-down
}

// answer is what is known about a charge.
type answer uint8

const (
	unknown answer = iota
	denied         // it is refused
	due            // likewise, but the next question is due
	seen           // another charge refuses the request, and this one had room within the last second
)

// denies reports whether a decision is to be remembered as a denial.
func denies(c *limit.Charge, d *limit.Decision) bool {
	return d.Outcome == limit.Refused && (c.Penalty == nil || d.Penalized && !c.DryRun())
}

// hasRoom reports whether a decision shows what is left beside a charge that refused the request.
func hasRoom(c *limit.Charge, d *limit.Decision) bool {
	return d.Outcome == limit.Allowed && d.Charged == 0 && c.Penalty == nil
}

// learn takes in a reply, which denies the charge, or shows that there is room, and returns until when that matters.
func (m *memo) learn(c *limit.Charge, d *limit.Decision, sent int64, denies, room bool) (until int64) {
	if d.At >= m.at || sent >= m.sent+askAgain { // one asked for later is newer, though the clock was set back
		m.at, m.sent, m.asked = d.At, max(m.sent, sent), max(m.asked, sent)
		m.remaining, m.reset = d.Remaining, sent+d.ResetAfter.Nanoseconds()
		m.until, m.seen = 0, 0
		if room {
			m.seen = sent
		}
		if denies {
			m.limit, m.cost, m.maxWait, m.cools = c.Limit, c.Cost, c.MaxWait, d.Penalized
			m.retry = sent + d.RetryAfter.Nanoseconds()
			m.until = m.retry - c.MaxWait.Nanoseconds()
		}
	}
	return max(m.until, m.asked+2*askAgain)
}

// answer answers a charge by what is known, nil for nothing.
func (m *memo) answer(c *limit.Charge, now int64) (limit.Decision, answer) {
	if m == nil {
		return limit.Decision{}, unknown
	}
	now = max(now, m.sent) // another caller may have learned this after now was read
	switch {
	case m.refuses(c, now) && now-m.asked < askAgain:
		return m.refusal(c, now), denied
	case m.refuses(c, now):
		return m.refusal(c, now), due
	case c.Penalty == nil && !c.Each && now-m.seen < askAgain && m.remaining >= c.Cost:
		reset := time.Duration(max(m.reset-now, 0))
		return limit.Decision{Outcome: limit.Allowed, Remaining: m.remaining, ResetAfter: reset}, seen
	}
	return limit.Decision{}, unknown
}

// refuses reports whether the counter is known to refuse a charge that takes nothing then: one with Each takes what is
// left.
func (m *memo) refuses(c *limit.Charge, now int64) bool {
	switch {
	case now >= m.until:
		return false
	case m.cools:
		return !c.DryRun()
	case c.Each && c.Op == limit.Spend && (m.remaining > 0 || m.cost > 1 && !c.Limit.Algorithm.EndsAtOnce()):
		return false
	}
	return m.covers(c)
}

// covers reports whether a charge is refused for at least as long as the one that was refused.
func (m *memo) covers(c *limit.Charge) bool {
	a := c.Limit.Algorithm
	larger := a.EndsAtOnce() || a.Fills() && c.Lease == 0 && c.MaxWait == 0 && m.cost <= c.Limit.Burst
	return c.Limit == m.limit && c.MaxWait == m.maxWait && (c.Cost == m.cost || c.Cost > m.cost && larger)
}

// refusal refuses a charge. Of a bucket the answer is corrected by the tokens that came back since, and by those that a
// larger cost needs more.
func (m *memo) refusal(c *limit.Charge, now int64) limit.Decision {
	d := limit.Decision{
		Outcome: limit.Refused, Cached: true, Penalized: m.cools, Remaining: m.remaining, At: m.at + (now-m.sent)/1000,
		ResetAfter: time.Duration(max(m.reset-now, 0)), RetryAfter: time.Duration(m.retry - now),
	}
	l := &c.Limit
	if m.cools || !l.Algorithm.Fills() || m.cost > l.Burst || l.Count == 0 {
		return d
	}
	token := float64(l.Window.Microseconds()) / float64(l.Count)
	d.Remaining = max(d.Remaining, m.cost-1-int64(float64(d.RetryAfter.Microseconds())/token))
	switch {
	case c.Cost > l.Burst:
		d.RetryAfter = max(d.RetryAfter, d.ResetAfter)
	case c.Cost > m.cost:
		d.RetryAfter += time.Duration(float64(c.Cost-m.cost)*token+1) * time.Microsecond
	}
	return d
}
