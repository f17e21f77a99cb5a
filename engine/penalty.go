package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// punish records under the domain's penalty that a rule refuses the client, and lets the refusal wait for the end of
// the cool-down that this starts. It is a question of its own, because the rule's counter and the client's record may
// live in different places. The share records what the store did not. The store is not asked where it has just left the
// question about the cool-down undecided: the caller would wait for the same server twice.
func (e *Engine) punish(ctx context.Context, v *Verdict) {
	if !v.offends() {
		return
	}
	asked := v.Match.Gate - 1
	c := v.Match.Charges[asked]
	c.Op, c.Cost = limit.Spend, 1
	r := &limit.Request{Charges: []limit.Charge{c}, Decisions: make([]limit.Decision, 1), Due: dueOf(ctx)}
	if v.Decisions[asked].Reason == "" {
		e.ask(ctx, e.cfg.Store, r)
	}
	if r.Decisions[0].Outcome == limit.Undecided && e.cfg.Share != nil {
		e.ask(ctx, e.cfg.Share, r)
	}
	for i := range v.Decisions {
		if v.isOffence(i) && !c.DryRun() {
			v.Decisions[i].RetryAfter = max(v.Decisions[i].RetryAfter, r.Decisions[0].RetryAfter)
		}
	}
}

// offends reports whether a refusal is to be recorded under the penalty of the domain.
func (v *Verdict) offends() bool {
	if v.Match.Gate == 0 || v.Decisions[v.Match.Gate-1].Outcome == limit.Refused {
		return false
	}
	for i := range v.Decisions {
		if v.isOffence(i) {
			return true
		}
	}
	return false
}

// isOffence reports whether decision i is a refusal by a rule that has counted: not by a tree, a cool-down, or a lost
// store.
func (v *Verdict) isOffence(i int) bool {
	t, c, d := &v.Match.Terms[i], &v.Match.Charges[i], &v.Decisions[i]
	counted := d.Reason == "" || t.Effect.OnFailure == descriptors.FailLocal
	return d.Outcome == limit.Refused && counted && !d.Penalized &&
		!t.Effect.Tree && c.Op == limit.Spend && c.Mode == limit.Enforced
}
