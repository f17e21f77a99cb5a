package engine

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// closedRetry is what a client is told to wait when a rule refuses because the store is away.
const closedRetry = time.Second

// uncounted stands in Decision.Remaining where a charge was admitted and not counted.
const uncounted = -1

// degrade decides what the store left undecided, each charge by its rule's failure policy: closed first, because its
// refusal keeps the local twins from being charged. If that refuses the request, the store gets back what it took.
//
// Reason, Unknown and Pending stay in the decisions that were made here, and only in those.
func (e *Engine) degrade(ctx context.Context, v *Verdict) {
	e.byPolicies(v)
	e.local(ctx, v)
	if v.refuses() {
		e.giveBack(ctx, v, false)
	}
}

// byPolicies decides each charge that the store left undecided by its rule's failure policy, but for those that are counted here.
func (e *Engine) byPolicies(v *Verdict) {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Outcome == limit.Undecided {
			d.Reason = firstOf(d.Reason, "error")
			v.Degraded = firstOf(v.Degraded, d.Reason)
			e.byPolicy(v, i)
		}
	}
}

// refuses reports whether the request is refused by what has been decided so far.
func (v *Verdict) refuses() bool {
	return limit.Refuses(v.Match.Charges, v.Decisions)
}

// despite decides a request whose decision ended in a panic: without counting, so only closed refuses.
func (e *Engine) despite(v *Verdict) {
	v.Refused, v.Refusing, v.Response, v.Degraded = false, nil, nil, "panic"
	for i := range v.Match.Terms {
		t := &v.Match.Terms[i]
		if t.Effect.OnFailure != descriptors.FailClosed || t.Effect.Mode != limit.Enforced {
			continue
		}
		v.Shadowed, v.Refused = e.cfg.Shadow, !e.cfg.Shadow
		v.Refusing, v.Response, v.RetryAfter = t.Effect, t.Effect.Response, closedRetry
		if t.Descriptor >= 0 {
			v.Statuses[t.Descriptor].Over = true
		}
	}
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
		*d = limit.Decision{Outcome: limit.Refused, RetryAfter: closedRetry, ResetAfter: closedRetry, Reason: d.Reason, Unknown: d.Unknown, Pending: d.Pending}
		return
	}
	*d = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted, Reason: d.Reason, Unknown: d.Unknown, Pending: d.Pending}
}

// local decides in memory what is still undecided, on this sidecar's share, and notes what it owes the store for that.
func (e *Engine) local(ctx context.Context, v *Verdict) {
	p := v.part.begin()
	refused, room := v.refuses(), v.quotaRoom()
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			p.add(i, localCharge(v.Match.Charges[i], e.liveOf(v), refused, room))
		}
	}
	e.askPart(ctx, e.cfg.Fallback, p)
	for n, i := range p.at {
		d := p.decisions[n]
		if d.Outcome == limit.Undecided {
			d = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted}
		}
		d.Reason, d.Unknown, d.Pending = v.Decisions[i].Reason, v.Decisions[i].Unknown, v.Decisions[i].Pending
		v.Decisions[i] = d
		e.owe(&v.Match.Charges[i], &d, d.Charged)
	}
}

// localCharge is a charge as the fallback sees it, which knows only a part of the request. Where the request is refused
// already, only Each charges take. Where another quota has room, those here cannot refuse it.
func localCharge(c limit.Charge, live int64, refused, room bool) limit.Charge {
	c.Limit = shareOf(c.Limit, live)
	if c.Mode == limit.Quota && room {
		c.Mode = limit.Shadow
	}
	if !refused || c.Each {
		return c
	}
	if c.Op == limit.Spend {
		c.Op = limit.Peek
	}
	if c.Op != limit.Peek {
		c.Cost = 0
	}
	return c
}

// quotaRoom reports whether a quota charge is known to have room.
func (v *Verdict) quotaRoom() bool {
	for i := range v.Match.Charges {
		if v.Match.Charges[i].Mode == limit.Quota && v.Decisions[i].Outcome == limit.Allowed {
			return true
		}
	}
	return false
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
