package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// punish records under the domain's penalty that a rule refuses the client. It is a question of its own, one for all
// verdicts, because the rules' counters and the client's record may live in different places. The store is not asked
// where it has just left the question about the cool-down undecided: its caller would wait for the same server twice.
func (e *Engine) punish(ctx context.Context, verdicts []*Verdict) {
	requests := verdicts[0].one[:0]
	e.each(verdicts, func(v *Verdict) {
		v.offence = v.mustRecord()
		if !v.offence {
			return
		}
		c := v.Match.Charges[v.Match.Gate-1]
		c.Op, c.Cost = limit.Spend, 1
		v.part.begin().add(0, c)
		if v.Decisions[v.Match.Gate-1].Reason == "" {
			v.part.request.Due = dueOf(ctx)
			requests = append(requests, &v.part.request)
		}
	})
	e.ask(ctx, e.cfg.Store, requests)
	e.each(verdicts, func(v *Verdict) {
		if v.offence {
			e.endRecord(ctx, v)
		}
	})
}

// mustRecord reports whether a refusal is to be recorded under the penalty of the domain.
func (v *Verdict) mustRecord() bool {
	if v.Match.Gate == 0 || v.Decisions[v.Match.Gate-1].Outcome == limit.Refused {
		return false
	}
	for i := range v.Decisions {
		if v.offends(i) {
			return true
		}
	}
	return false
}

// endRecord lets the refusal wait for the end of the cool-down that it starts. What the store did not record is
// recorded here.
func (e *Engine) endRecord(ctx context.Context, v *Verdict) {
	p := &v.part
	if p.request.Decisions[0].Outcome == limit.Undecided && e.cfg.Share != nil {
		e.askPart(ctx, e.cfg.Share, p)
	}
	if p.request.Charges[0].DryRun() {
		return
	}
	for i := range v.Decisions {
		if v.offends(i) {
			v.Decisions[i].RetryAfter = max(v.Decisions[i].RetryAfter, p.request.Decisions[0].RetryAfter)
		}
	}
}

// offends reports whether decision i counts as a refusal by a rule: not by a tree, a cool-down, or a lost store.
func (v *Verdict) offends(i int) bool {
	t, c, d := &v.Match.Terms[i], &v.Match.Charges[i], &v.Decisions[i]
	if t.Effect.Tree || c.Op != limit.Spend || c.Mode != limit.Enforced || d.Outcome != limit.Refused || d.Penalized {
		return false
	}
	return v.counted(i)
}

// counted reports whether decision i was made by counting: by the store, or by the share.
func (v *Verdict) counted(i int) bool {
	return v.Decisions[i].Reason == "" || v.Match.Terms[i].Effect.OnFailure == descriptors.FailLocal
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
