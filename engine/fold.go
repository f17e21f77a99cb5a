package engine

import (
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// fold makes one verdict of the decisions: who refuses, how long to wait, and one status per descriptor.
func (e *Engine) fold(v *Verdict) {
	clear(v.Statuses)
	v.Refused, v.RetryAfter, v.Refusing, v.Response, v.Reported, v.Cost = false, 0, nil, nil, Status{}, 0
	e.refuseUncounted(v)
	room := v.quotaHasRoom()
	for i := range v.Match.Terms {
		if i != v.Match.Gate-1 {
			v.foldDecision(i, room)
		}
	}
	v.foldGate()
	for i := range v.Match.Unlimited {
		t := &v.Match.Unlimited[i]
		if t.Descriptor >= 0 && t.Effect.Tree {
			v.Statuses[t.Descriptor].Unlimited = true
		}
	}
	v.Refused, v.Shadowed = v.Refused && !e.cfg.Shadow, v.Refused && e.cfg.Shadow
	v.Conclude()
}

// refuseUncounted refuses a request that no limit was asked about, on its first descriptor.
func (e *Engine) refuseUncounted(v *Verdict) {
	switch block := v.Match.Block; {
	case v.Malformed != nil:
		v.Refused = true
	case v.Excess != "":
		v.Refused, v.RetryAfter, v.Response = true, closedRetry, excessResponse
	case block != nil:
		var d limit.Decision
		if !block.Until.IsZero() {
			d.RetryAfter = max(block.Until.Sub(e.cfg.Now()), time.Second)
		}
		v.refuse(block, &d)
	}
	if v.Refused && len(v.Statuses) > 0 {
		v.Statuses[0].Over = true
	}
}

// foldGate refuses a client in a cool-down of its domain. No limit refuses it, so its descriptor shows none.
func (v *Verdict) foldGate() {
	gate := v.Match.Gate - 1
	if gate < 0 || v.Decisions[gate].Outcome != limit.Refused {
		return
	}
	t := &v.Match.Terms[gate]
	v.refuse(t.Effect, &v.Decisions[gate])
	if t.Descriptor >= 0 {
		v.Statuses[t.Descriptor] = Status{Over: true}
	}
}

// quotaHasRoom reports whether a quota is known to have room.
func (v *Verdict) quotaHasRoom() bool {
	for i := range v.Match.Charges {
		if v.Match.Charges[i].Mode == limit.Quota && v.Decisions[i].Outcome == limit.Allowed {
			return true
		}
	}
	return false
}

// foldDecision notes whether limit i refuses, and reports it where it is the strictest. Quotas refuse only together.
func (v *Verdict) foldDecision(i int, room bool) {
	t, c, d := &v.Match.Terms[i], &v.Match.Charges[i], &v.Decisions[i]
	if d.Outcome == limit.Refused && (c.Mode == limit.Enforced || c.Mode == limit.Quota && !room) {
		v.refuse(t.Effect, d)
	}
	if t.Effect.Shadow() {
		return
	}
	if v.Reported.report(t.Effect, d) {
		v.Cost = c.Cost
	}
	if t.Descriptor >= 0 {
		v.Statuses[t.Descriptor].report(t.Effect, d)
	}
}

// refuse notes a limit that refuses the request, and keeps the one with the longest wait.
func (v *Verdict) refuse(effect *descriptors.Effect, d *limit.Decision) {
	wait := waitOf(effect, d)
	if !v.Refused || wait > v.RetryAfter {
		v.Refusing, v.Response, v.RetryAfter = effect, effect.Response, wait
	}
	v.Refused = true
}

// waitOf is the retry-after of a limit: what its rule asks for, else when the limit lets the client pass.
func waitOf(effect *descriptors.Effect, d *limit.Decision) time.Duration {
	if effect.Response != nil && effect.Response.RetryAfter > 0 {
		return effect.Response.RetryAfter
	}
	return d.RetryAfter
}

// report lets a status show this decision if it is stricter than what it shows: a refusal with a longer wait, else the
// one with fewer tokens left. It reports whether it does. A decision that was not counted has no numbers.
func (s *Status) report(effect *descriptors.Effect, d *limit.Decision) bool {
	refused, wait := d.Outcome == limit.Refused, waitOf(effect, d)
	switch {
	case d.Remaining == uncounted:
		return false
	case s.Effect == nil, refused && !s.Over:
	case s.Over && !refused, refused && wait <= s.wait, !refused && d.Remaining >= s.Remaining:
		return false
	}
	s.Over = refused
	s.Effect, s.Remaining, s.ResetAfter, s.wait = effect, d.Remaining, d.ResetAfter, wait
	return true
}
