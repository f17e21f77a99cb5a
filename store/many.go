package store

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// manyCallers is how many calls of one request with many charges are under way at once. A server is busy with these few only, and
// serves others in between.
const manyCallers = 2

var errTooMany = errors.New("more charges than one call may have are to be made all or none")

// askMany decides a request with more charges than one call may have. Charges with Each do not depend on each other and go in
// several calls. The others are charged all or none, so they go last, in one call, which knows whether the request is refused by then.
// More of these than one call may have are undecided, unless they only ask: the engine refuses such a request before.
//
// All calls together take as long as one may. What is left then is undecided, without having been sent.
func (r *Redis) askMany(ctx context.Context, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	ctx, cancel := context.WithTimeout(ctx, r.patience*10/8) // of which allowance leaves eight tenths
	defer cancel()
	var each, rest part
	for i := range charges {
		if charges[i].Each || charges[i].Op == limit.Peek && charges[i].Mode == limit.Shadow {
			each.add(charges[i], i)
		} else {
			rest.add(charges[i], i)
		}
	}
	if len(rest.charges) > limit.MaxTogether {
		r.lost(decisions, fleet.ReasonError, errTooMany, false)
		return
	}
	each.decisions = make([]limit.Decision, len(each.charges))
	parts, _ := r.split(each.charges)
	r.askInTurn(ctx, parts, refused)
	for _, p := range parts {
		p.report(each.decisions)
	}
	each.report(decisions)
	if len(rest.charges) == 0 {
		return
	}
	refused = refused || refusedBefore(&each, &rest)
	r.askRest(ctx, &rest, refused, hasRoom(&each))
	rest.report(decisions)
}

// askRest makes the call of the charges that are made all or none. Where a quota has room, those here cannot refuse the request.
func (r *Redis) askRest(ctx context.Context, rest *part, refused, room bool) {
	for i := range rest.charges {
		if room && rest.charges[i].Mode == limit.Quota {
			rest.charges[i].Mode = limit.Shadow
		}
	}
	rest.decisions = make([]limit.Decision, len(rest.charges))
	t := r.scratch.Get().(*trip)
	r.ask(ctx, t, rest.charges, refused, rest.decisions)
	r.scratch.Put(t.reset())
}

// refusedBefore reports whether the charges of each refuse the request, whatever the rest gets. Quotas refuse it only all together, so those of
// each do not where the rest has some.
func refusedBefore(each, rest *part) bool {
	if !slices.ContainsFunc(rest.charges, func(c limit.Charge) bool { return c.Mode == limit.Quota }) {
		return limit.Refuses(each.charges, each.decisions)
	}
	for i := range each.charges {
		if each.charges[i].Mode == limit.Enforced && each.decisions[i].Outcome == limit.Refused {
			return true
		}
	}
	return false
}

// hasRoom reports whether a quota of the part has room.
func hasRoom(p *part) bool {
	for i := range p.charges {
		if p.charges[i].Mode == limit.Quota && p.decisions[i].Outcome == limit.Allowed {
			return true
		}
	}
	return false
}

// askInTurn makes the calls of all parts, a few at once, and returns when each has its decisions.
func (r *Redis) askInTurn(ctx context.Context, parts []*part, refused bool) {
	turns := make(chan *part, len(parts))
	for _, p := range parts {
		turns <- p
	}
	close(turns)
	var callers sync.WaitGroup
	for range manyCallers {
		callers.Go(func() {
			for p := range turns {
				r.askPart(ctx, p, refused)
			}
		})
	}
	callers.Wait()
}
