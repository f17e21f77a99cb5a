package store

import (
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// leave ends the wait for a trip and reports true, or false if the trip is over just now. The worker that brings the
// reply gets a copy of the charges, because the request belongs to its caller again.
func (r *Redis) leave(t *trip, request *limit.Request, began time.Time) bool {
	late := Late{Charges: slices.Clone(t.charges), Decisions: make([]limit.Decision, len(t.charges))}
	if !t.undoes {
		for i, place := range t.places {
			late.Charges[i] = request.Charges[place] // whose quotas are quotas
		}
		if request.Fate == nil {
			request.Fate = new(limit.Fate)
		}
		late.Fate = request.Fate
	}
	script, undoes := t.script, t.undoes
	t.pending.Late = func(p *redis.Pending) { r.arrived(p, script, late, began, undoes) }
	t.left = t.pending.Leave()
	return t.left
}

// arrived takes in what became of charges whose caller left. It runs on the worker that brings the reply.
func (r *Redis) arrived(p *redis.Pending, script *limit.Script, late Late, began time.Time, undoes bool) {
	late.Err = decide(script, p, late.Charges, late.Decisions)
	switch {
	case late.Err == nil:
		r.late.Add(1)
	case late.Decisions[0].Unknown:
		r.unknown.Add(1)
	}
	r.learn(late.Charges, late.Decisions, began)
	if undoes {
		r.countNotReturned(late.Charges, late.Decisions)
		return
	}
	r.cfg.OnLate(late)
}
