package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/spillway-mesh/spillway/limit"
)

// part is the charges of a request that one call can have together.
type part struct {
	node      *node
	slot      int
	undoes    bool // gives back what another part took
	charges   []limit.Charge
	places    []int // charges[i] is the request's charge places[i]
	decisions []limit.Decision
}

// askParts decides a request whose counters live in several places. All places are asked at once, each for its part, and each takes
// what it can. If one of them refuses, what the others took is given back, so that it is all or nothing once the answer is out.
//
// Meanwhile others may find less on a counter than there is in the end, and be refused: for as long as these two trips take. The
// reverse never happens: nothing is given to a counter before it is known to be due.
func (r *Redis) askParts(ctx context.Context, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	first, second := r.split(charges)
	r.askAll(ctx, first, refused)
	for _, p := range first {
		p.report(decisions)
	}
	refused = refused || limit.Refuses(charges, decisions)
	var back []*part
	if refused {
		for _, p := range first {
			back = append(back, p.undo()...)
		}
	}
	r.askAll(ctx, append(second, back...), refused)
	for _, p := range second {
		p.report(decisions)
	}
	for _, p := range back {
		r.returned(p, decisions)
	}
}

// split sorts charges by where they live. Refunds come second: one that is given and then has to be taken back, because the request
// is refused elsewhere, would be spent by others in between. Quotas do not refuse a part of a request, only all of it.
func (r *Redis) split(charges []limit.Charge) (first, second []*part) {
	for i := range charges {
		c := charges[i]
		n, slot := r.place(&c)
		if c.Mode == limit.Quota {
			c.Mode = limit.Shadow
		}
		wave := &first
		if c.Op == limit.Refund && !c.Each {
			wave = &second
		}
		p := find(*wave, n, slot)
		if p == nil {
			p = &part{node: n, slot: slot}
			*wave = append(*wave, p)
		}
		p.charges, p.places = append(p.charges, c), append(p.places, i)
	}
	return first, second
}

func find(parts []*part, n *node, slot int) *part {
	for _, p := range parts {
		if p.node == n && p.slot == slot {
			return p
		}
	}
	return nil
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
			r.lost(p.decisions, ReasonError, fmt.Errorf("panic: %v", fault))
		}
	}()
	t := r.scratch.Get().(*trip)
	r.askNode(ctx, p.node, t, p.charges, refused && !p.undoes, p.decisions)
	r.scratch.Put(t.reset())
}

// report puts the decisions of a part in their places.
func (p *part) report(decisions []limit.Decision) {
	for i, place := range p.places {
		decisions[place] = p.decisions[i]
	}
}

// undo is the call that gives back what the part took, or nothing. Charges with Each stay, as they would in one call.
func (p *part) undo() []*part {
	back := &part{node: p.node, slot: p.slot, undoes: true}
	for i, c := range p.charges {
		taken := p.decisions[i].Charged
		if taken <= 0 || c.Each {
			continue
		}
		back.charges = append(back.charges, limit.Charge{Key: c.Key, Limit: c.Limit, Cost: taken, Op: limit.Refund})
		back.places = append(back.places, p.places[i])
	}
	if len(back.charges) == 0 {
		return nil
	}
	return []*part{back}
}

// returned tells the request what is left after its tokens were given back. Where that failed they stay taken until time gives them
// back, and are not given back again: nobody knows whether they were.
func (r *Redis) returned(back *part, decisions []limit.Decision) {
	for i, place := range back.places {
		d, after := &decisions[place], &back.decisions[i]
		d.Charged, d.Wait = 0, 0
		if after.Outcome == limit.Undecided {
			r.notReturned.Add(back.charges[i].Cost)
			continue
		}
		d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
	}
}
