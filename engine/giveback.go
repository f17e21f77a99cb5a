package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// giveBack undoes at the store what it charged for a request that is refused after all: everything, or only what a refused
// request is not charged. What could not be given back is counted, and stays charged: it admits less, never more. With everything, the caller
// has seen to the fallback.
func (e *Engine) giveBack(ctx context.Context, v *Verdict, everything bool) {
	p := v.part.begin()
	for i := range v.Decisions {
		d, c := &v.Decisions[i], &v.Match.Charges[i]
		if d.Charged != 0 && d.Reason == "" && (everything || !c.Each) {
			p.add(i, undone(*c, d))
		}
	}
	e.askPart(ctx, e.cfg.Store, p)
	for n, i := range p.at {
		back, d := &p.decisions[n], &v.Decisions[i]
		if back.Outcome == limit.Undecided {
			e.unreturned.Add(1)
			continue
		}
		if !everything && e.tells(v, i) {
			e.countBack(ctx, v, i)
		}
		d.Charged, d.Remaining, d.ResetAfter = 0, back.Remaining, back.ResetAfter
	}
}

// countBack takes off the fallback what it is told later that charge i took of tokens that the store holds.
func (e *Engine) countBack(ctx context.Context, v *Verdict, i int) {
	back := mirrored(v.Match.Charges[i], -v.Decisions[i].Charged, e.liveOf(v))
	e.ask(ctx, e.cfg.Fallback, []limit.Charge{back}, make([]limit.Decision, 1))
}

// undone is the charge that makes one undone that was decided so.
func undone(c limit.Charge, d *limit.Decision) limit.Charge {
	c.Op, c.Cost, c.Until = limit.Refund, d.Charged, limit.RefundUntil(c.Limit, d)
	if d.Charged < 0 {
		c.Op, c.Cost, c.Until = limit.Debit, -d.Charged, 0
	}
	c.Mode, c.Each, c.MaxWait, c.Penalty = limit.Shadow, true, 0, nil
	return c
}

// hangUp undoes all that a request was charged whose caller is gone, each charge where it was made: at the store and in
// its mirror, or in the fallback and in what is owed for that.
func (e *Engine) hangUp(ctx context.Context, v *Verdict) {
	if e.cfg.Fallback != nil {
		p := v.part.begin()
		for i := range v.Decisions {
			d, c := &v.Decisions[i], &v.Match.Charges[i]
			if d.Charged != 0 && v.Match.Terms[i].Effect.OnFailure == descriptors.FailLocal {
				if n := v.counted(i); n != 0 {
					p.add(i, mirrored(*c, -n, e.liveOf(v)))
				}
				e.owe(c, d, -d.Charged)
			}
			if d.Reason != "" {
				d.Charged = 0
			}
		}
		e.askPart(ctx, e.cfg.Fallback, p)
	}
	e.giveBack(ctx, v, true)
}

// counted is what the fallback counted of charge i: what it charged itself, or what it mirrored of the store's.
func (v *Verdict) counted(i int) int64 {
	if v.Decisions[i].Reason != "" || len(v.mirrored) == 0 {
		return v.Decisions[i].Charged
	}
	return v.mirrored[i]
}

// owe notes that this sidecar decided n tokens of a charge on its own. What the store may have charged itself is not owed.
func (e *Engine) owe(c *limit.Charge, d *limit.Decision, n int64) {
	if n != 0 && d.Reason != "" && !d.Unknown {
		e.debts.note(c, n)
	}
}
