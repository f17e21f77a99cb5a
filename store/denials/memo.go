package denials

import (
	"math/bits"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

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

// denies reports whether a decision is to be remembered as a denial.
func denies(c *limit.Charge, d *limit.Decision) bool {
	return d.Outcome == limit.Refused && (c.Penalty == nil || d.Penalized && !c.DryRun())
}

// hasRoom reports whether a decision shows what is left beside a charge that refused the request.
func hasRoom(c *limit.Charge, d *limit.Decision) bool {
	return d.Outcome == limit.Allowed && d.Charged == 0 && c.Penalty == nil
}

// learn takes in a reply, which denies the charge, or shows that there is room, and returns until when that matters.
func (m *memo) learn(c *limit.Charge, d *limit.Decision, a answered, denies, room bool) (until int64) {
	if d.At < m.at && a.sent < m.sent+askAgain { // older; one asked for later is newer, though the clock was set back
		return max(m.until, m.asked+2*askAgain)
	}
	m.at, m.sent, m.asked = d.At, max(m.sent, a.sent), max(m.asked, a.sent)
	m.remaining, m.reset = d.Remaining, a.sent+d.ResetAfter.Nanoseconds()
	m.until, m.seen = 0, 0
	if room {
		m.seen = a.sent
	}
	if denies {
		m.limit, m.cost, m.maxWait, m.cools = c.Limit, c.Cost, c.MaxWait, d.Penalized
		m.retry = a.sent + d.RetryAfter.Nanoseconds()
		m.until = m.retry - c.MaxWait.Nanoseconds()
	}
	return max(m.until, m.asked+2*askAgain)
}

// answer answers a charge by what is known.
func (m *memo) answer(c *limit.Charge, now int64) (limit.Decision, answer) {
	switch d, known := m.refuse(c, now); {
	case known && now-m.asked < askAgain:
		return d, denied
	case known:
		return d, due
	case c.Penalty == nil && !c.Each && now-m.seen < askAgain && m.remaining >= c.Cost:
		reset := time.Duration(max(m.reset-now, 0))
		return limit.Decision{Outcome: limit.Allowed, Remaining: m.remaining, ResetAfter: reset}, seen
	}
	return limit.Decision{}, unknown
}

// refuse answers a charge that the counter is known to refuse, and that takes nothing then.
func (m *memo) refuse(c *limit.Charge, now int64) (limit.Decision, bool) {
	if now >= m.until || !m.cools && !m.covers(c) || m.cools && c.DryRun() {
		return limit.Decision{}, false
	}
	d := limit.Decision{
		Outcome: limit.Refused, Cached: true, Penalized: m.cools, Remaining: m.remaining, At: m.at + (now-m.sent)/1000,
		ResetAfter: time.Duration(max(m.reset-now, 0)), RetryAfter: time.Duration(m.retry - now),
	}
	if !m.cools && c.Limit.Algorithm.Fills() && m.cost <= c.Limit.Burst {
		m.refill(c, &d)
	}
	return d, true
}

// covers reports whether a charge is refused for as long as the one that was refused. One with Each takes what is left,
// so nothing may be left until then.
func (m *memo) covers(c *limit.Charge) bool {
	a := c.Limit.Algorithm
	switch {
	case c.Limit != m.limit || c.MaxWait != m.maxWait || c.Cost < m.cost:
		return false
	case c.Each && c.Op == limit.Spend && !m.empty():
		return false
	}
	return c.Cost == m.cost || a.EndsAtOnce() || a.Fills() && c.Lease == 0 && c.MaxWait == 0 && m.cost <= c.Limit.Burst
}

// empty reports whether nothing is left until the charge that was refused can pass.
func (m *memo) empty() bool {
	return m.remaining == 0 && (m.cost <= 1 || m.limit.Algorithm.EndsAtOnce())
}

// refill corrects the answer of a bucket by the tokens that came back since, and by those that a larger cost needs
// more.
func (m *memo) refill(c *limit.Charge, d *limit.Decision) {
	l := &c.Limit
	missing := share(d.RetryAfter.Microseconds(), l.Count, l.Window.Microseconds())
	d.Remaining = max(d.Remaining, m.cost-1-missing)
	switch {
	case c.Cost > l.Burst:
		d.RetryAfter = max(d.RetryAfter, d.ResetAfter)
	case c.Cost > m.cost:
		d.RetryAfter += time.Duration(share(c.Cost-m.cost, l.Window.Microseconds(), l.Count)+1) * time.Microsecond
	}
}

// share is n × part / whole, rounded down.
func share(n, part, whole int64) int64 {
	high, low := bits.Mul64(uint64(max(n, 0)), uint64(part))
	if whole < 1 || high >= uint64(whole) {
		return 0
	}
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return int64(quotient)
}
