package store

import (
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// coolFor is how long a cool-down is refused without asking again. It may last for a day, and a pardon that came through
// another process has to be seen soon; one question a second costs next to nothing.
const coolFor = time.Second

// coolMemo is a cool-down that the server told of. Any other refusal of a charge with a penalty has to be recorded on the
// server, so nothing but a cool-down is refused here.
type coolMemo struct {
	key       string        // of the penalty
	end       int64         // µs on the server
	until     time.Duration // since start: to be asked again afterwards
	remaining int64         // of a sliding log, which has no state here
	reset     time.Duration // since start, likewise
}

// rememberPenaltyLocked takes in the reply about a charge with a penalty.
func (d *denials) rememberPenaltyLocked(s *denialShard, a answer) {
	if a.decision.Outcome == limit.Refused && a.decision.Penalized && !a.charge.DryRun() {
		d.coolLocked(s, a)
		return
	}
	if a.decision.Charged != 0 {
		d.dropLocked(s, a.charge.Key)
		return
	}
	m := s.memos[a.charge.Key]
	if m != nil && m.sent <= a.sent {
		m.cool = nil
	}
}

func (d *denials) coolLocked(s *denialShard, a answer) {
	m := d.memoLocked(s, a.charge.Key, a.sent)
	if m.sent > a.sent {
		return // a younger answer came first
	}
	m.cool = &coolMemo{
		key: strings.Clone(a.charge.PenaltyKey), end: a.server + a.decision.RetryAfter.Microseconds(), until: a.sent + coolFor,
		remaining: a.decision.Remaining, reset: a.sent + a.decision.ResetAfter,
	}
	if a.charge.Limit.Algorithm != limit.SlidingLog {
		m.denied, m.state, m.log = true, *a.state, nil
	}
	m.server, m.sent, m.until = a.server, a.sent, max(m.until, a.sent+coolFor)
}

// cools refuses a charge whose client is in a cool-down, with the rest of it and what is left on the charge's counter.
func (m *memo) cools(t *trip, i int, now time.Duration) bool {
	c, d := &t.charges[i], &t.decisions[i]
	if m.cool == nil || m.cool.until <= now || m.cool.key != c.PenaltyKey || c.DryRun() {
		return false
	}
	server := m.server + microsUp(now-m.sent)
	rest := time.Duration(m.cool.end-server) * time.Microsecond
	if rest <= 0 {
		return false
	}
	if c.Limit.Algorithm == limit.SlidingLog {
		*d = limit.Decision{Remaining: m.cool.remaining, ResetAfter: max(m.cool.reset-now, 0)}
	} else {
		t.copied, t.peeked[0] = m.state, *c
		t.copies[0], t.peeked[0].Op = &t.copied, limit.Peek
		limit.Decide(t.copies[:], t.peeked[:], false, server, t.decisions[i:i+1])
	}
	d.Outcome, d.RetryAfter, d.Penalized = limit.Refused, rest, true
	return true
}
