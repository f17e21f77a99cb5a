package engine

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// punish records under the domain's penalty that a rule refuses the client. It is a call of its own, because the rules'
// counters and the client's record may live in different places. A refusal that starts a cool-down waits for its end.
func (e *Engine) punish(ctx context.Context, v *Verdict) {
	gate := v.Match.Gate - 1
	if gate < 0 || v.Decisions[gate].Outcome == limit.Refused || !v.anyOffence() {
		return
	}
	c := v.Match.Charges[gate]
	c.Op, c.Cost = limit.Spend, 1
	wait := e.record(ctx, v, c)
	if c.DryRun() {
		return
	}
	for i := range v.Decisions {
		if v.offends(i) {
			v.Decisions[i].RetryAfter = max(v.Decisions[i].RetryAfter, wait)
		}
	}
}

// record returns how long the cool-down lasts that the refusal starts, 0 if it starts none.
func (e *Engine) record(ctx context.Context, v *Verdict, c limit.Charge) time.Duration {
	p := v.part.begin()
	p.add(0, c)
	e.askPart(ctx, e.cfg.Store, p)
	if p.decisions[0].Outcome == limit.Undecided && e.cfg.Fallback != nil {
		e.askPart(ctx, e.cfg.Fallback, p)
	}
	return p.decisions[0].RetryAfter
}

func (v *Verdict) anyOffence() bool {
	for i := range v.Decisions {
		if v.offends(i) {
			return true
		}
	}
	return false
}

// offends reports whether decision i counts as a refusal by a rule: not by a tree, a cool-down, or a lost store.
func (v *Verdict) offends(i int) bool {
	t, c, d := &v.Match.Terms[i], &v.Match.Charges[i], &v.Decisions[i]
	if t.Effect.Tree || c.Op != limit.Spend || c.Mode != limit.Enforced || d.Outcome != limit.Refused || d.Penalized {
		return false
	}
	return d.Reason == "" || t.Effect.OnFailure == descriptors.FailLocal
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
