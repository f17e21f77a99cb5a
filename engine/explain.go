package engine

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Explain fills v with what Decide would make of req now, charges nothing, and returns how the request was matched; nil where no rules
// were looked at. No callback is called. It matches and folds by the functions that Decide uses; only what the store is asked differs.
//
// Decisions[i].Remaining is what would be left afterwards, and Left(i) what is left now.
func (e *Engine) Explain(ctx context.Context, req *descriptors.Request, v *Verdict) (how *descriptors.Explanation) {
	v.reset(len(req.Descriptors))
	counts := false
	if !e.guard(func() { counts = e.match(ctx, req, v) }) {
		v.reset(len(req.Descriptors))
		v.Match, v.Degraded = descriptors.Match{}, "panic"
		return nil
	}
	if v.Match.Domain != nil && v.Malformed == nil && v.Excess == "" {
		how = v.Match.Domain.Explain(req, &v.Match)
	}
	if counts && len(v.Match.Charges) > 0 {
		e.foresee(ctx, v)
	}
	e.fold(v)
	return how
}

// foresee fills the decisions with what Spend would answer.
func (e *Engine) foresee(ctx context.Context, v *Verdict) {
	e.setQuotas(v)
	p := v.part.begin()
	for i := range v.Match.Charges {
		p.add(i, v.Match.Charges[i])
	}
	p.accumulate()
	e.usage(ctx, e.cfg.Store, p)
	v.take(p)
	e.byPolicies(v)
	e.foreseeLocal(ctx, v)
	v.foreseeGate()
	v.settleForeseen()
}

// accumulate makes each charge ask for what those before it on the same counter would have taken, too.
func (p *part) accumulate() {
	spent := map[string]int64{}
	for i := range p.charges {
		c := &p.charges[i]
		if c.Op != limit.Spend && c.Op != limit.Peek {
			continue
		}
		cost := c.Cost
		c.Cost = min(cost+spent[c.Key], limit.MaxCost)
		if c.Op == limit.Spend {
			spent[c.Key] = c.Cost
		}
	}
}

// usage asks a Counter for what is left. Where it panics the decisions are undecided.
func (e *Engine) usage(ctx context.Context, c Counter, p *part) {
	p.decisions = resize(p.decisions, len(p.charges))
	if len(p.charges) > 0 && !e.guard(func() { c.Usage(ctx, p.charges, p.decisions) }) {
		clear(p.decisions)
	}
}

// take fills in what a part was answered. What is never refused is admitted.
func (v *Verdict) take(p *part) {
	for n, i := range p.at {
		d := p.decisions[n]
		op := v.Match.Charges[i].Op
		if d.Outcome == limit.Refused && op != limit.Spend && op != limit.Peek {
			d.Outcome, d.RetryAfter = limit.Allowed, 0
		}
		v.Decisions[i] = d
	}
}

// foreseeLocal is local without charges.
func (e *Engine) foreseeLocal(ctx context.Context, v *Verdict) {
	p := v.part.begin()
	refused, room := v.refuses(), v.quotaRoom()
	for i := range v.Decisions {
		if v.Decisions[i].Outcome == limit.Undecided {
			p.add(i, localCharge(v.Match.Charges[i], e.liveOf(v), refused, room))
		}
	}
	if len(p.charges) == 0 {
		return
	}
	reasons := make([]string, len(p.at))
	for n, i := range p.at {
		reasons[n] = v.Decisions[i].Reason
	}
	p.accumulate()
	e.usage(ctx, e.cfg.Fallback, p)
	v.take(p)
	for n, i := range p.at {
		v.Decisions[i].Reason = reasons[n]
	}
}

// foreseeGate corrects the question about a domain's penalty: it asks for nothing, and nothing but a cool-down refuses it.
func (v *Verdict) foreseeGate() {
	gate := v.Match.Gate - 1
	if gate < 0 {
		return
	}
	d := &v.Decisions[gate]
	if d.Outcome == limit.Refused && d.Reason == "" && (!d.Penalized || v.Match.Charges[gate].DryRun()) {
		d.Outcome, d.RetryAfter = limit.Allowed, 0
	}
}

// settleForeseen changes what is left now into what would be left afterwards, and keeps the former.
func (v *Verdict) settleForeseen() {
	refused := v.refuses()
	v.left = v.left[:0]
	spent := map[string]int64{}
	for i := range v.Decisions {
		v.left = append(v.left, v.Decisions[i].Remaining)
		if v.Match.Charges[i].Each || !refused {
			v.spendForeseen(i, spent)
		}
	}
	for i := range v.Decisions {
		c, d := &v.Match.Charges[i], &v.Decisions[i]
		taken := spent[c.Key]
		if taken == 0 || d.Remaining == uncounted {
			continue
		}
		d.Remaining = max(d.Remaining-taken, 0)
		if c.Limit.Algorithm.Fills() && c.Limit.Count > 0 {
			d.ResetAfter += time.Duration(float64(c.Limit.Window) * float64(taken) / float64(c.Limit.Count))
		}
	}
}

// spendForeseen notes what charge i would take from its counter: all that is left, if it is taken in part.
func (v *Verdict) spendForeseen(i int, spent map[string]int64) {
	c, d := &v.Match.Charges[i], &v.Decisions[i]
	switch {
	case c.Op != limit.Spend || d.Remaining == uncounted:
		return
	case d.Outcome == limit.Allowed:
		d.Charged = c.Cost
	case c.Each:
		d.Charged = max(d.Remaining-spent[c.Key], 0)
	}
	spent[c.Key] += d.Charged
}

// Left is what is left now on the counter of charge i, of a verdict that Explain has filled; -1 where it is not counted.
func (v *Verdict) Left(i int) int64 { return v.left[i] }
