package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// closedRetry is the retry-after of a rule that refuses because the store is away.
const closedRetry = time.Second

// uncounted stands in Decision.Remaining where a charge was admitted and not counted.
const uncounted = -1

// degrade decides what the store left undecided, each charge by its rule's failure policy: closed first, because its
// refusal keeps the share from being charged. If that refuses the request, the store gets back what it took.
//
// Reason and Unknown stay in the decisions that were made here, and only in those.
func (e *Engine) degrade(ctx context.Context, v *Verdict) {
	e.byPolicies(v)
	if v.Degraded == "" {
		return
	}
	e.local(ctx, v)
	if v.refuses() {
		e.giveBackLater(v)
	}
}

// byPolicies decides each charge that the store left undecided by its rule's failure policy, where that needs no
// counting: open admits, closed refuses what can be refused. What the share counts stays undecided.
func (e *Engine) byPolicies(v *Verdict) {
	for i := range v.Decisions {
		d, policy := &v.Decisions[i], v.Match.Terms[i].Effect.OnFailure
		if d.Outcome != limit.Undecided {
			continue
		}
		d.Reason = cmp.Or(d.Reason, "error")
		v.Degraded = cmp.Or(v.Degraded, d.Reason)
		switch {
		case policy == descriptors.FailLocal && e.cfg.Share != nil:
		case policy == descriptors.FailClosed && refusable(&v.Match.Charges[i]):
			d.Outcome, d.RetryAfter, d.ResetAfter = limit.Refused, closedRetry, closedRetry
		default:
			d.Outcome, d.Remaining = limit.Allowed, uncounted
		}
	}
}

// refusable reports whether a limit can refuse the charge: not a refund, nor what is paid afterwards.
func refusable(c *limit.Charge) bool { return c.Op == limit.Spend || c.Op == limit.Peek }

// refuses reports whether the request is refused by what has been decided so far.
func (v *Verdict) refuses() bool { return limit.Refuses(v.Match.Charges, v.Decisions) }

// despite decides a request whose decision ended in a panic: it is admitted where nothing had matched, and else only
// closed refuses, because nothing can be counted.
func (e *Engine) despite(v *Verdict) {
	if !v.matched {
		asked := v.asked
		v.reset(len(asked.Descriptors))
		v.asked, v.Match, v.Degraded = asked, descriptors.Match{}, "panic"
		return
	}
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

// local decides what is still undecided on this sidecar's share of the limits.
func (e *Engine) local(ctx context.Context, v *Verdict) {
	p := e.beginLocal(v)
	e.askPart(ctx, e.cfg.Share, p)
	for n, i := range p.at {
		d := p.request.Decisions[n]
		if d.Outcome == limit.Undecided {
			d = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted}
		}
		d.Reason, d.Unknown = v.Decisions[i].Reason, v.Decisions[i].Unknown
		v.Decisions[i] = d
	}
}

// beginLocal begins a part of the charges that are still undecided, as the share sees them.
func (e *Engine) beginLocal(v *Verdict) *part {
	p := v.part.begin()
	refused := v.refuses()
	_, room := v.quotas()
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			p.add(i, localCharge(v.Match.Charges[i], e.liveOf(v), refused, room))
		}
	}
	return p
}

// localCharge is a charge as the share sees it, which knows only a part of the request. Where the request is refused
// already, only Each charges take. Where another quota has room, those here cannot refuse it.
func localCharge(c limit.Charge, live int64, refused, room bool) limit.Charge {
	c.Limit = shareOf(c.Limit, live)
	if c.Mode == limit.Quota && room {
		c.Mode = limit.Shadow
	}
	switch {
	case !refused || c.Each:
	case refusable(&c):
		c.Op = limit.Peek
	default:
		c.Cost = 0
	}
	return c
}

// liveOf is how many sidecars share the limits that a request met, as last known.
func (e *Engine) liveOf(v *Verdict) int64 {
	if e.cfg.Live == nil {
		return 1
	}
	return int64(max(e.cfg.Live(v.Match.Domain.Name), 1))
}

// shareOf is the part of a limit that one of live sidecars may hand out on its own: rounded down, so that all parts
// together are no more than the limit, but at least 1 of what is not 0.
func shareOf(l limit.Limit, live int64) limit.Limit {
	if live <= 1 {
		return l
	}
	l.Count, l.Burst = min(l.Count, max(l.Count/live, 1)), min(l.Burst, max(l.Burst/live, 1))
	// The count may have lost more to rounding than the burst, which would take longer to fill than a limit may.
	if l.Algorithm.Fills() && l.Count > 0 {
		fills := float64(l.Count) * (float64(limit.MaxFill) / float64(l.Window))
		if float64(l.Burst) > fills {
			l.Burst = int64(fills)
		}
	}
	return l
}
