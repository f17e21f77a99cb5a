package store

import (
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// coolMemo is a cool-down that the server reported. Any other refusal of a charge with a penalty has to be recorded on the
// server, so nothing but a cool-down is refused here. As every denial it is asked about again each second: it may last for a
// day, and a pardon through another sidecar has to be seen soon.
type coolMemo struct {
	key       string // of the penalty
	end       int64  // µs on the server
	asked     lastAsked
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
	if m == nil || !m.hear(&a) {
		return
	}
	m.cool = nil
	if a.decision.Outcome == limit.Allowed {
		m.denied, m.log = false, nil
	}
}

func (d *denials) coolLocked(s *denialShard, a answer) {
	m := d.memoLocked(s, a.charge, a.sent)
	if !m.hear(&a) {
		return
	}
	if m.cool == nil || m.cool.key != a.charge.PenaltyKey {
		m.cool = &coolMemo{key: strings.Clone(a.charge.PenaltyKey)}
	}
	m.cool.end = a.server + a.decision.RetryAfter.Microseconds()
	m.cool.remaining, m.cool.reset = a.decision.Remaining, a.sent+a.decision.ResetAfter
	m.cool.asked.heard(a.sent)
	if !a.charge.Limit.Algorithm.KeepsLog() {
		m.denied, m.state, m.log = true, *a.state, nil
		m.asked.heard(a.sent)
	}
	m.until = max(m.until, a.sent+max(a.decision.RetryAfter, leastKept))
}

// cools refuses a charge whose client is in a cool-down, with the rest of it and what is left on the charge's counter. It
// returns when the server was last asked about the cool-down, or nil if none is known.
func (m *memo) cools(t *trip, i int, now time.Duration) *lastAsked {
	c, d := &t.charges[i], &t.decisions[i]
	if m.cool == nil || m.cool.key != c.PenaltyKey || c.DryRun() {
		return nil
	}
	server := m.serverAt(now)
	rest := time.Duration(m.cool.end-server) * time.Microsecond
	if rest <= 0 {
		return nil
	}
	if c.Limit.Algorithm.KeepsLog() {
		*d = limit.Decision{Remaining: m.cool.remaining, ResetAfter: max(m.cool.reset-now, 0)}
	} else {
		t.copied, t.peeked[0] = m.state, *c
		t.copies[0], t.peeked[0].Op = &t.copied, limit.Peek
		limit.Decide(t.copies[:], t.peeked[:], false, server, t.decisions[i:i+1])
	}
	d.Outcome, d.RetryAfter, d.Penalized = limit.Refused, rest, true
	return &m.cool.asked
}
