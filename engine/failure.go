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
	v.byPolicies(e.cfg.Share != nil)
	if v.Degraded == "" {
		return
	}
	e.local(ctx, v)
	if v.refuses() {
		e.giveBack(v.Match.Domain, v.Match.Charges, v.Decisions, false)
	}
}

// byPolicies decides each charge that the store left undecided by its rule's failure policy, where that needs no
// counting: open admits, closed refuses what can be refused. What a share counts stays undecided.
func (v *Verdict) byPolicies(share bool) {
	for i := range v.Decisions {
		d, policy := &v.Decisions[i], v.Match.Terms[i].Effect.OnFailure
		if d.Outcome != limit.Undecided {
			continue
		}
		d.Reason = cmp.Or(d.Reason, "error")
		v.Degraded = cmp.Or(v.Degraded, d.Reason)
		switch {
		case policy == descriptors.FailLocal && share:
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
	if len(v.Decisions) == 0 {
		v.reset(v.asked)
	}
	v.Degraded = "panic"
	for i := range v.Decisions {
		v.Decisions[i] = limit.Decision{Reason: "panic", Unknown: true}
	}
	e.guard(func() {
		v.byPolicies(false)
		e.fold(v)
	})
}

// part is some of the charges of a request, changed for a question of their own.
type part struct {
	request limit.Request
	at      []int // request.Charges[n] is about Match.Charges[at[n]]
}

func (p *part) begin() {
	p.request = limit.Request{Charges: p.request.Charges[:0], Decisions: p.request.Decisions[:0]}
	p.at = p.at[:0]
}

func (p *part) add(i int, c limit.Charge) {
	p.request.Charges, p.at = append(p.request.Charges, c), append(p.at, i)
	p.request.Decisions = append(p.request.Decisions, limit.Decision{})
}

// local decides what is still undecided on this sidecar's share of the limits.
func (e *Engine) local(ctx context.Context, v *Verdict) {
	p := &v.part
	e.beginLocal(v)
	if len(p.at) == 0 {
		return
	}
	e.ask(ctx, e.cfg.Share, &p.request)
	for n, i := range p.at {
		d := p.request.Decisions[n]
		if d.Outcome == limit.Undecided {
			d = limit.Decision{Outcome: limit.Allowed, Remaining: uncounted}
		}
		d.Reason, d.Unknown = v.Decisions[i].Reason, v.Decisions[i].Unknown
		v.Decisions[i] = d
	}
}

// beginLocal makes the verdict's part of the charges that are still undecided.
func (e *Engine) beginLocal(v *Verdict) {
	v.part.begin()
	refused, room := v.refuses(), v.quotaHasRoom()
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			v.part.add(i, localCharge(v.Match.Charges[i], e.liveOf(v.Match.Domain), refused, room))
		}
	}
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

// liveOf is how many sidecars share the limits of a domain, as last known.
func (e *Engine) liveOf(domain *descriptors.CompiledDomain) int64 {
	if e.cfg.Live == nil {
		return 1
	}
	return int64(max(e.cfg.Live(domain.Name), 1))
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
