package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// leastRefunds is the least number of refunds that may be under way at once, if not as many as answers may be held: all
// of those may be given back together. Further ones are counted as failed.
const leastRefunds = 1000

// refundAll undoes what a request took that is refused after all, each charge where it was made. No caller waits for
// it: it may have used up its patience. What stays charged of a refused request goes back only with everything.
func (e *Engine) refundAll(domain *descriptors.CompiledDomain, r *limit.Request, everything bool) {
	store, share := new(limit.Request), new(limit.Request)
	for i := range r.Decisions {
		c, d, from := r.Charges[i], &r.Decisions[i], store
		if d.Charged == 0 || c.Each && !everything {
			continue
		}
		if d.Reason != "" {
			c.Limit, from = shareOf(c.Limit, e.liveOf(domain.Name)), share
		}
		from.Charges = append(from.Charges, refundOf(c, d))
		if d.Wait == 0 { // else some of it was not there
			d.Remaining += d.Charged
		}
		d.Charged = 0
	}
	e.refund(e.cfg.Store, store)
	e.refund(e.cfg.Share, share)
}

// refundOf returns the charge that takes back what a decided charge has taken. It debits what a refund gave.
func refundOf(c limit.Charge, d *limit.Decision) limit.Charge {
	c.Op, c.Cost, c.Until = limit.Refund, d.Charged, limit.RefundUntil(c.Limit, d)
	if d.Charged < 0 {
		c.Op, c.Cost, c.Until = limit.Debit, -d.Charged, 0
	}
	c.Mode, c.Each, c.Lease, c.MaxWait, c.Penalty = limit.Shadow, true, 0, 0, nil
	return c
}

// refund sends what gives back. It tries once, in the background. What fails is counted, and stays charged: that admits
// less, never more.
func (e *Engine) refund(c Counter, r *limit.Request) {
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
		e.ask(context.Background(), c, r)
		for i := range r.Decisions {
			if r.Decisions[i].Outcome == limit.Undecided {
				e.unreturned.Add(1)
			}
		}
	}()
}

// follow compares the verdict with the replies to a request that come after it: what was admitted and the store refuses
// is an over-admission, and what a refused request was charged is given back.
func (e *Engine) follow(v *Verdict) {
	if v.request.Fate == nil {
		return
	}
	domain, effects, refused := v.Match.Domain, map[string]*descriptors.Effect{}, v.Refused || v.Shadowed
	for i := range v.Match.Charges {
		effects[v.Match.Charges[i].Key] = v.Match.Terms[i].Effect
	}
	v.request.Fate.Compare(func(reply *limit.Request) {
		if refused {
			e.refundAll(domain, reply, false)
			return
		}
		for i, c := range reply.Charges {
			if reply.Decisions[i].Outcome == limit.Refused && c.Mode == limit.Enforced {
				e.over.Add(1)
				e.cfg.OnOverAdmitted(domain, effects[c.Key])
			}
		}
	})
}
