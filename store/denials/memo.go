package denials

import (
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
