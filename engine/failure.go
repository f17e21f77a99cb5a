package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

const (
	closedRetry = time.Second // the retry-after of a rule that refuses because the store is away
	uncounted   = -1          // Decision.Remaining of a charge that was admitted and not counted
)

// degrade decides what the store left undecided, each charge by its rule's failure policy: closed first, because its
// refusal keeps the share from being charged. If that refuses the request, the store gets back what it took.
//
// Reason and Unknown stay in the decisions that were made here, and only in those.
func (e *Engine) degrade(ctx context.Context, v *Verdict) {
	v.byPolicies(e.cfg.Share != nil)
	if v.Degraded == "" {
		return
	}
	if r := e.forShare(v); len(r.Charges) > 0 {
		e.ask(ctx, e.cfg.Share, r)
		v.decideOpen(r.Decisions)
		v.byPolicies(false)
	}
	if v.refuses() {
		e.refundAll(v.Match.Domain, &v.request, false)
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

// afterPanic decides a request whose decision ended in a panic: it is admitted where nothing had matched, and else only
// closed refuses, because nothing can be counted.
func (e *Engine) afterPanic(v *Verdict) {
	if len(v.Decisions) == 0 {
		v.reset(v.asked)
	}
	v.Degraded = "panic"
	for i := range v.Decisions {
		v.Decisions[i] = limit.Decision{Reason: "panic", Unknown: true}
	}
	if !Guard(e.cfg.OnPanic, func() {
		v.byPolicies(false)
		e.fold(v)
	}) {
		v.Conclude()
	}
}

// open makes a request of the charges that are undecided.
func (v *Verdict) open() *limit.Request {
	r := &v.part
	*r = limit.Request{Charges: r.Charges[:0], Decisions: r.Decisions}
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			r.Charges = append(r.Charges, v.Match.Charges[i])
		}
	}
	r.Decisions = resize(r.Decisions, len(r.Charges))
	return r
}

// decideOpen takes the decisions on the charges that are undecided. Why they were stays.
func (v *Verdict) decideOpen(decisions []limit.Decision) {
	for i := range v.Decisions {
		if old := &v.Decisions[i]; old.Outcome == limit.Undecided {
			d := decisions[0]
			d.Reason, d.Unknown = cmp.Or(old.Reason, d.Reason), old.Unknown || d.Unknown
			*old, decisions = d, decisions[1:]
		}
	}
}

// forShare makes a request to this sidecar's share of the limits, of the charges that are undecided. It is a part of
// the whole: where that is refused already, only Each charges take; where another quota has room, none here refuses.
func (e *Engine) forShare(v *Verdict) *limit.Request {
	r, refused, room := v.open(), v.refuses(), v.quotaHasRoom()
	for i := range r.Charges {
		c := &r.Charges[i]
		c.Limit = shareOf(c.Limit, e.liveOf(v.Match.Domain.Name))
		if c.Mode == limit.Quota && room {
			c.Mode = limit.Shadow
		}
		switch {
		case !refused || c.Each:
		case refusable(c):
			c.Op = limit.Peek
		default:
			c.Cost = 0
		}
	}
	return r
}

// liveOf is how many sidecars share the limits of a domain, as last known.
func (e *Engine) liveOf(domain string) int64 {
	if e.cfg.Live == nil {
		return 1
	}
	return int64(max(e.cfg.Live(domain), 1))
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
		l.Burst = int64(min(float64(l.Burst), float64(l.Count)*(float64(limit.MaxFill)/float64(l.Window))))
	}
	return l
}
