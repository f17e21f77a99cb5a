package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// late is a charge that a failure policy decided while the store's reply was still to come.
type late struct {
	engine  *Engine
	domain  *descriptors.CompiledDomain
	effect  *descriptors.Effect
	charge  limit.Charge
	decided limit.Decision // by the policy
	refused bool           // what the request got
}

// follow sees to the replies that are still to come for a request, once its verdict stands.
func (e *Engine) follow(v *Verdict) {
	if v.Degraded == "" {
		return
	}
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Pending == nil {
			continue
		}
		l := &late{
			engine: e, domain: v.Match.Domain, effect: v.Match.Terms[i].Effect, charge: v.Match.Charges[i],
			decided: *d, refused: v.Refused || v.Shadowed,
		}
		pending := d.Pending
		d.Pending, l.decided.Pending = nil, nil
		pending.Then(func(d limit.Decision) { e.guard(func() { l.settle(d) }) })
	}
}

// settle compares what the store decided with what the request got. What a refused request was charged is given back. What the store
// would have refused and was admitted is an over-admission. What the store never saw is owed to it, like everything that is decided
// while it is away. So is what the store had room for and did not charge, because another limit refused the request there. Where the
// reply is lost, none of these is known.
func (l *late) settle(d limit.Decision) {
	switch {
	case d.Outcome == limit.Undecided && d.Unknown:
	case d.Outcome == limit.Undecided:
		l.owe()
	case !l.refused:
		l.settleAdmitted(&d)
	case d.Charged != 0 && !l.charge.Each:
		l.giveBack(&d)
	}
}

// settleAdmitted is settle for an admitted request that the store has decided.
func (l *late) settleAdmitted(d *limit.Decision) {
	switch {
	case d.Outcome == limit.Refused && l.charge.Mode == limit.Enforced:
		l.engine.cfg.OnOverAdmitted(l.domain, l.effect)
	case d.Outcome == limit.Allowed && d.Charged == 0 && l.decided.Charged > 0:
		l.owe()
	}
}

// owe notes what the fallback charged, now that the store is known to have charged nothing.
func (l *late) owe() {
	l.decided.Unknown = false
	l.engine.owe(&l.charge, &l.decided, l.decided.Charged)
}

// giveBack undoes the charge at the store. What could not be given back is counted, and stays charged.
func (l *late) giveBack(d *limit.Decision) { l.tryBack(undone(l.charge, d), backTries) }

// tryBack gives back, now or a little later: what made the reply late has often opened the breaker, too.
func (l *late) tryBack(c limit.Charge, tries int) {
	ctx, cancel := context.WithTimeout(context.Background(), payTimeout)
	defer cancel()
	back := make([]limit.Decision, 1)
	l.engine.cfg.Store.Spend(ctx, []limit.Charge{c}, back)
	switch {
	case back[0].Outcome != limit.Undecided:
	case back[0].Unknown || tries == 0 || !l.engine.debts.later(func() { l.tryBack(c, tries-1) }):
		l.engine.unreturned.Add(1)
	}
}
