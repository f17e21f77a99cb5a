package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// part is the charges of a request that one call can have together.
type part struct {
	node      *fleet.Node
	slot      int
	charges   []limit.Charge
	places    []int // charges[i] is the request's charge places[i]
	decisions []limit.Decision
}

// askParts decides a request whose counters live in several places. All places are asked at once, each for its part, and each takes
// what it can. If one of them refuses, what the others took is given back, so that it is all or nothing once the answer is out.
//
// Meanwhile others may find less on a counter than there is in the end, and be refused: for as long as these two trips take. The
// reverse never happens: nothing is given to a counter before it is known to be due, nor after the window in which it was taken.
func (r *Redis) askParts(ctx context.Context, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	began := time.Now()
	first, second := r.split(charges)
	r.askAll(ctx, first, refused)
	for _, p := range first {
		p.report(decisions)
	}
	refused = refused || limit.Refuses(charges, decisions)
	if refused {
		r.giveBack(ctx, first, decisions, r.rest(began))
	}
	if len(second) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.rest(began)*10/8) // allowance takes 80 % of it
	defer cancel()
	r.askAll(ctx, second, refused)
	for _, p := range second {
		p.report(decisions)
	}
}

// rest is what a request has left of its patience: the waves of a split request share it. A further wave gets a fifth of it at least.
func (r *Redis) rest(began time.Time) time.Duration {
	return max(r.patience-time.Since(began), r.patience/5)
}

// split sorts charges by where they live. Refunds come second: one that is given and then has to be taken back, because the request
// is refused elsewhere, would be spent by others in between. So a charge does not profit from a refund to its own counter in the same
// request, as it would in one call. Quotas do not refuse a part of a request, only all of it.
func (r *Redis) split(charges []limit.Charge) (first, second []*part) {
	open := map[home]*part{}
	for i := range charges {
		c := charges[i]
		n, slot := r.place(&c)
		if c.Mode == limit.Quota {
			c.Mode = limit.Shadow
		}
		at := home{n, slot, c.Op == limit.Refund && !c.Each}
		p := open[at]
		if p == nil || len(p.charges) == limit.MaxTogether {
			p = &part{node: n, slot: slot}
			open[at] = p
			if at.second {
				second = append(second, p)
			} else {
				first = append(first, p)
			}
		}
		p.add(c, i)
	}
	return first, second
}

// home is where the charges of a part live, and in which wave they are sent.
type home struct {
	node   *fleet.Node
	slot   int
	second bool
}

// askAll makes the calls of all parts at once, and returns when each has its decisions.
func (r *Redis) askAll(ctx context.Context, parts []*part, refused bool) {
	if len(parts) == 0 {
		return
	}
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(func() { r.askPart(ctx, p, refused) })
	}
	r.askPart(ctx, parts[0], refused)
	others.Wait()
}

// askPart makes one call. A panic must not end the process only because it happened beside the request's own goroutine.
func (r *Redis) askPart(ctx context.Context, p *part, refused bool) {
	p.decisions = make([]limit.Decision, len(p.charges))
	defer func() {
		if fault := recover(); fault != nil {
			r.lost(p.decisions, fleet.ReasonError, fmt.Errorf("panic: %v", fault), true)
		}
	}()
	t := r.scratch.Get().(*trip)
	r.askNode(ctx, p.node, t, p.charges, refused, p.decisions)
	r.scratch.Put(t.reset())
}

// report puts the decisions of a part in their places.
func (p *part) report(decisions []limit.Decision) {
	for i, place := range p.places {
		decisions[place] = p.decisions[i]
	}
}

// giveBack returns what the parts of a refused request took, and lets the decisions say so. The answer does not wait for it longer
// than that, nor than its caller can, but the giving back goes on: it has a budget of its own.
func (r *Redis) giveBack(ctx context.Context, taken []*part, decisions []limit.Decision, longest time.Duration) {
	var back []*part
	for _, p := range taken {
		if b := p.undo(decisions); b != nil {
			back = append(back, b)
		}
	}
	if len(back) == 0 {
		return
	}
	patience := time.NewTimer(min(r.allowance(ctx), longest))
	defer patience.Stop()
	returned := make(chan struct{})
	r.background.run(func() {
		defer close(returned)
		r.askAll(context.WithoutCancel(ctx), back, false)
		for _, b := range back {
			r.count(b)
		}
	})
	select {
	case <-returned:
		for _, b := range back {
			b.refresh(decisions)
		}
	case <-patience.C:
	}
}

// undo is the call that gives back what the part took, or nothing. Charges with Each stay, as they would in one call; on a counter that
// gets something back they ask what is left then.
func (p *part) undo(decisions []limit.Decision) *part {
	back := &part{node: p.node, slot: p.slot}
	given := map[string]bool{}
	for i, c := range p.charges {
		if p.decisions[i].Charged > 0 && !c.Each {
			given[c.Key] = true
		}
	}
	for i, c := range p.charges {
		took, d := &p.decisions[i], &decisions[p.places[i]]
		switch {
		case !given[c.Key]:
		case took.Charged > 0 && !c.Each:
			back.add(limit.Charge{Key: c.Key, Limit: c.Limit, Cost: took.Charged, Op: limit.Refund, Until: limit.RefundUntil(c.Limit, took)}, p.places[i])
			d.Charged, d.Wait = 0, 0
		default:
			back.add(limit.Charge{Key: c.Key, Limit: c.Limit, Cost: c.Cost, Op: limit.Peek, Mode: limit.Shadow}, p.places[i])
		}
	}
	if len(given) == 0 {
		return nil
	}
	return back
}

func (p *part) add(c limit.Charge, place int) {
	p.charges, p.places = append(p.charges, c), append(p.places, place)
}

// count counts what could not be given back. It stays taken until time gives it back, and is not given back again: it is unknown
// whether it was.
func (r *Redis) count(back *part) {
	for i, d := range back.decisions {
		if d.Outcome == limit.Undecided && back.charges[i].Op == limit.Refund {
			r.notReturned.Add(back.charges[i].Cost)
		}
	}
}

// refresh tells the request what is left after its tokens were given back.
func (p *part) refresh(decisions []limit.Decision) {
	for i, place := range p.places {
		d, after := &decisions[place], &p.decisions[i]
		if after.Outcome == limit.Undecided {
			continue
		}
		d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
		if d.Outcome == limit.Refused && !d.Penalized {
			d.RetryAfter = after.RetryAfter
		}
	}
}
