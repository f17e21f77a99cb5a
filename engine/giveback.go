package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// maxRefunds is how many refunds for late replies may be under way at once. Those beyond are counted as failed.
const maxRefunds = 1000

// part is some of the charges of a request, changed for a question of their own.
type part struct {
	request limit.Request
	at      []int // request.Charges[n] is about Match.Charges[at[n]]
	one     [1]*limit.Request
}

func (p *part) begin() *part {
	p.request = limit.Request{Charges: p.request.Charges[:0], Decisions: p.request.Decisions[:0]}
	p.at = p.at[:0]
	return p
}

func (p *part) add(i int, c limit.Charge) {
	p.request.Charges, p.at = append(p.request.Charges, c), append(p.at, i)
	p.request.Decisions = append(p.request.Decisions, limit.Decision{})
}

// askPart fills the part's decisions.
func (e *Engine) askPart(ctx context.Context, c Counter, p *part) {
	if len(p.at) == 0 {
		return
	}
	p.request.Due = dueOf(ctx)
	p.one[0] = &p.request
	e.ask(ctx, c, p.one[:])
}

// giveBack undoes at the store all that it charged for a request whose caller is gone. What could not be given back is
// counted, and stays charged: it admits less, never more.
func (e *Engine) giveBack(ctx context.Context, v *Verdict) {
	p := v.part.begin()
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Charged != 0 && d.Reason == "" {
			p.add(i, undone(v.Match.Charges[i], d))
		}
	}
	e.askPart(ctx, e.cfg.Store, p)
	for n, i := range p.at {
		back, d := &p.request.Decisions[n], &v.Decisions[i]
		if back.Outcome == limit.Undecided {
			e.unreturned.Add(1)
			continue
		}
		d.Charged, d.Remaining, d.ResetAfter = 0, back.Remaining, back.ResetAfter
	}
}

// giveBackLater undoes at the store what it charged for a request that is refused after all, but what a refused request
// is charged. The caller does not wait for it: it may have used up its patience.
func (e *Engine) giveBackLater(v *Verdict) {
	r := new(limit.Request)
	for i := range v.Decisions {
		d, c := &v.Decisions[i], &v.Match.Charges[i]
		if d.Charged != 0 && d.Reason == "" && !c.Each {
			r.Charges = append(r.Charges, undone(*c, d))
			d.Remaining, d.Charged = d.Remaining+d.Charged, 0
		}
	}
	e.refund(r)
}

// undone is the charge that makes one undone that was decided so.
func undone(c limit.Charge, d *limit.Decision) limit.Charge {
	c.Op, c.Cost, c.Until = limit.Refund, d.Charged, limit.RefundUntil(c.Limit, d)
	if d.Charged < 0 {
		c.Op, c.Cost, c.Until = limit.Debit, -d.Charged, 0
	}
	c.Mode, c.Each, c.Lease, c.MaxWait, c.Penalty = limit.Shadow, true, 0, 0, nil
	return c
}

// hangUp undoes all that a request was charged whose caller is gone, each charge where it was made.
func (e *Engine) hangUp(ctx context.Context, v *Verdict) {
	p := v.part.begin()
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Charged != 0 && d.Reason != "" {
			c := v.Match.Charges[i]
			c.Limit = shareOf(c.Limit, e.liveOf(v))
			p.add(i, undone(c, d))
			d.Charged = 0
		}
	}
	e.askPart(ctx, e.cfg.Share, p)
	e.giveBack(ctx, v)
}

// Late takes the reply of the store to a part of a request whose caller had left: the request was decided by policies,
// or is about to be. It compares the two and does not block: what was admitted and the store refuses is an
// over-admission, and what a refused request was charged is given back. Nothing is done in the other cases, nor after
// an error.
func (e *Engine) Late(fate *limit.Fate, charges []limit.Charge, decisions []limit.Decision, err error) {
	if err == nil {
		e.guard(func() { fate.Reply(charges, decisions) })
	}
}

// follow sees to the replies that are still to come for a request, once its verdict stands.
func (e *Engine) follow(v *Verdict) {
	if v.request.Fate == nil {
		return
	}
	domain, effects, refused := v.Match.Domain, map[string]*descriptors.Effect{}, v.Refused || v.Shadowed
	for i := range v.Match.Charges {
		effects[v.Match.Charges[i].Key] = v.Match.Terms[i].Effect
	}
	v.request.Fate.Compare(func(charges []limit.Charge, decisions []limit.Decision) {
		if refused {
			e.refundLate(charges, decisions)
			return
		}
		for i := range decisions {
			if decisions[i].Outcome == limit.Refused && charges[i].Mode == limit.Enforced {
				e.over.Add(1)
				e.cfg.OnOverAdmitted(domain, effects[charges[i].Key])
			}
		}
	})
}

// refundLate gives back what a refused request was charged late.
func (e *Engine) refundLate(charges []limit.Charge, decisions []limit.Decision) {
	r := new(limit.Request)
	for i := range decisions {
		if decisions[i].Charged != 0 && !charges[i].Each {
			r.Charges = append(r.Charges, undone(charges[i], &decisions[i]))
		}
	}
	e.refund(r)
}

// refund sends what gives back. It tries once, in the background, and counts what fails.
func (e *Engine) refund(r *limit.Request) {
	if len(r.Charges) == 0 {
		return
	}
	select {
	case e.refunds <- struct{}{}:
	default:
		e.unreturned.Add(int64(len(r.Charges)))
		return
	}
	go func() {
		defer func() { <-e.refunds }()
		r.Decisions = make([]limit.Decision, len(r.Charges))
		e.ask(context.Background(), e.cfg.Store, []*limit.Request{r})
		for i := range r.Decisions {
			if r.Decisions[i].Outcome == limit.Undecided {
				e.unreturned.Add(1)
			}
		}
	}()
}
