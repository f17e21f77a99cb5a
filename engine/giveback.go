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

// giveBack undoes at the store what it charged for a request that is refused after all: everything, or only what a
// refused request is not charged. What could not be given back is counted, and stays charged: it admits less, never
// more.
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
		back, d := &p.request.Decisions[n], &v.Decisions[i]
		if back.Outcome == limit.Undecided {
			e.unreturned.Add(1)
			continue
		}
		d.Charged, d.Remaining, d.ResetAfter = 0, back.Remaining, back.ResetAfter
	}
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
	e.giveBack(ctx, v, true)
}

// Late takes the reply of the store to a part of a request whose caller had left: the request was decided by policies,
// or is about to be. It compares the two and does not block. After an error nothing is known, and nothing is done.
func (e *Engine) Late(fate *limit.Fate, charges []limit.Charge, decisions []limit.Decision, err error) {
	if err == nil {
		e.guard(func() { fate.Reply(charges, decisions) })
	}
}

// late is what became of a request, for the replies that are still to come.
type late struct {
	engine  *Engine
	domain  *descriptors.CompiledDomain
	effects map[string]*descriptors.Effect // by the keys of the charges that were decided by policies
	refused bool
}

// follow sees to the replies that are still to come for a request, once its verdict stands.
func (e *Engine) follow(v *Verdict) {
	fate := v.request.Fate
	if fate == nil {
		return
	}
	v.request.Fate = nil
	l := &late{engine: e, domain: v.Match.Domain, effects: map[string]*descriptors.Effect{}, refused: v.Refused || v.Shadowed}
	for i := range v.Match.Charges {
		l.effects[v.Match.Charges[i].Key] = v.Match.Terms[i].Effect
	}
	fate.Compare(l.compare)
}

// compare compares what the store decided with what the request got. What was admitted and the store refuses is an
// over-admission. What a refused request was charged is given back. Nothing is done in the other cases: what the share
// admitted meanwhile is not charged to the store.
func (l *late) compare(charges []limit.Charge, decisions []limit.Decision) {
	var back []limit.Charge
	for i := range decisions {
		c, d := &charges[i], &decisions[i]
		switch {
		case d.Outcome == limit.Undecided:
		case !l.refused && d.Outcome == limit.Refused && c.Mode == limit.Enforced:
			l.engine.over.Add(1)
			l.engine.cfg.OnOverAdmitted(l.domain, l.effects[c.Key])
		case l.refused && d.Charged != 0 && !c.Each:
			back = append(back, undone(*c, d))
		}
	}
	if len(back) > 0 {
		l.engine.refundLater(back)
	}
}

// refundLater makes refunds in the background, because the goroutine that brings a reply must not wait. It tries once.
func (e *Engine) refundLater(charges []limit.Charge) {
	select {
	case e.refunds <- struct{}{}:
	default:
		e.unreturned.Add(int64(len(charges)))
		return
	}
	go func() {
		defer func() { <-e.refunds }()
		r := &limit.Request{Charges: charges, Decisions: make([]limit.Decision, len(charges))}
		e.ask(context.Background(), e.cfg.Store, []*limit.Request{r})
		for i := range r.Decisions {
			if r.Decisions[i].Outcome == limit.Undecided {
				e.unreturned.Add(1)
			}
		}
	}()
}
