package engine

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Explain fills v with what Decide would make of req now, charges nothing, and returns how the request was matched; nil
// where no rules were looked at. No callback is called. It matches and folds by the functions that Decide uses; only
// what the store is asked differs. Decisions[i].Remaining is what would be left afterwards.
func (e *Engine) Explain(ctx context.Context, req *descriptors.Request, v *Verdict) (how *descriptors.Explanation) {
	v.reset(req)
	if !Guard(e.cfg.OnPanic, func() {
		counts := e.match(ctx, v)
		if v.Match.Domain != nil && v.Excess == "" {
			how = v.Match.Domain.Explain(req, &v.Match)
		}
		if counts {
			e.foresee(ctx, v)
		}
		e.fold(v)
	}) {
		e.afterPanic(v)
	}
	v.asked = nil
	return how
}

// foresee fills the decisions with what the store would decide.
func (e *Engine) foresee(ctx context.Context, v *Verdict) {
	e.setQuotas(v)
	e.foreseeOpen(ctx, v, e.cfg.Store, v.open())
	v.byPolicies(e.cfg.Share != nil)
	e.foreseeOpen(ctx, v, e.cfg.Share, e.forShare(v))
	v.byPolicies(false)
	v.settleForeseen()
}

// foreseeOpen asks a Counter what it would decide on the charges that are undecided. Each asks for what those before it
// on the same counter would have taken, too. What is never refused is admitted.
func (e *Engine) foreseeOpen(ctx context.Context, v *Verdict, counter Counter, r *limit.Request) {
	spent := map[string]int64{}
	for i := range r.Charges {
		c := &r.Charges[i]
		if refusable(c) {
			c.Cost = min(c.Cost+spent[c.Key], limit.MaxCost)
			if c.Op == limit.Spend {
				spent[c.Key] = c.Cost
			}
		}
		c.Op = limit.Peek
	}
	e.peek(ctx, counter, r)
	v.decideOpen(r.Decisions)
	for i := range v.Decisions {
		if d := &v.Decisions[i]; d.Outcome == limit.Refused && !refusable(&v.Match.Charges[i]) {
			d.Outcome, d.RetryAfter = limit.Allowed, 0
		}
	}
}

// settleForeseen changes what is left now into what would be left after each charge, and keeps the former. A charge
// that is refused takes all that is left if it may take a part, else nothing.
func (v *Verdict) settleForeseen() {
	refused, spent := v.refuses(), map[string]int64{}
	v.left = v.left[:0]
	for i := range v.Decisions {
		c, d := &v.Match.Charges[i], &v.Decisions[i]
		v.left = append(v.left, d.Remaining)
		if d.Remaining == uncounted {
			continue
		}
		if c.Op == limit.Spend && (c.Each || !refused) {
			if d.Outcome == limit.Allowed {
				d.Charged = c.Cost
			} else if c.Each {
				d.Charged = max(d.Remaining-spent[c.Key], 0)
			}
			spent[c.Key] += d.Charged
		}
		d.Remaining = max(d.Remaining-spent[c.Key], 0)
		if c.Limit.Algorithm.Fills() && c.Limit.Count > 0 {
			d.ResetAfter += time.Duration(float64(c.Limit.Window) * float64(spent[c.Key]) / float64(c.Limit.Count))
		}
	}
}

// Left is what is left now on the counter of charge i of an explanation; -1 where it is not counted.
func (v *Verdict) Left(i int) int64 { return v.left[i] }
