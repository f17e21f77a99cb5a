package engine

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// closedRetry is what a client is told to wait when a rule refuses because the store is away.
const closedRetry = time.Second

// uncounted stands in Decision.Remaining where a charge was admitted without anybody counting it.
const uncounted = -1

// degrade decides what the store left undecided, each charge by its rule's failure policy: closed first, because its
// refusal keeps the local twins from being charged.
func (e *Engine) degrade(ctx context.Context, v *Verdict) {
	refused := false
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Outcome == limit.Undecided {
			v.Degraded = firstOf(v.Degraded, d.Reason, "error")
			e.byPolicy(v, i)
		}
		if d.Outcome == limit.Refused && v.Match.Charges[i].Mode == limit.Enforced {
			refused = true
		}
	}
	e.local(ctx, v, refused)
}

// byPolicy decides charge i where its policy needs no counting: open admits, closed refuses what can be refused.
func (e *Engine) byPolicy(v *Verdict, i int) {
	d, charge := &v.Decisions[i], &v.Match.Charges[i]
	policy := v.Match.Terms[i].Effect.OnFailure
	if policy == descriptors.FailLocal && e.cfg.Fallback != nil {
		return
	}
	refusable := charge.Op == limit.Spend || charge.Op == limit.Peek
	if policy == descriptors.FailClosed && refusable {
		*d = limit.Decision{Outcome: limit.Refused, RetryAfter: closedRetry, ResetAfter: closedRetry, Reason: d.Reason}
		return
	}
	*d = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted, Reason: d.Reason}
}

// local decides in memory what is still undecided. Where the request is refused already, only Each charges count.
func (e *Engine) local(ctx context.Context, v *Verdict, refused bool) {
	var charges []limit.Charge
	var at []int
	for i := range v.Decisions {
		if v.Decisions[i].Outcome != limit.Undecided {
			continue
		}
		c := v.Match.Charges[i]
		if refused && !c.Each {
			c.Op = limit.Peek
		}
		charges, at = append(charges, c), append(at, i)
	}
	if len(charges) == 0 {
		return
	}
	decisions := make([]limit.Decision, len(charges))
	e.ask(ctx, e.cfg.Fallback, charges, decisions)
	for n, i := range at {
		reason := v.Decisions[i].Reason
		v.Decisions[i] = decisions[n]
		if decisions[n].Outcome == limit.Undecided {
			v.Decisions[i] = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted}
		}
		v.Decisions[i].Reason = reason
	}
}

// firstOf returns the first text that is not empty.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
