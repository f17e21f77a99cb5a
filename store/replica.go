package store

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// askReplicas answers a request from replicas, and reports whether all of it is answered. The masters then still have
// at least half of the time. Nothing is learned from an answer that may be old: no decision depends on it.
func (r *Redis) askReplicas(ctx context.Context, request *limit.Request) bool {
	for i := range request.Charges {
		if !r.clientOf(&request.Charges[i]).AsksReplicas() {
			return false
		}
	}
	within := r.cfg.Patience
	if !request.Due.IsZero() {
		within = min(within, time.Until(request.Due)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	clear(request.Decisions)
	q := &question{store: r, request: request}
	q.divide()
	if slices.ContainsFunc(q.trips, func(t *trip) bool { return !t.look(ctx) }) {
		r.notCopied.Add(1)
		return false
	}
	r.copied.Add(1)
	return true
}

// look makes a trip to a replica, and reports whether that has the answer. A value that no limit wrote is left to the
// master, where it is deleted.
func (t *trip) look(ctx context.Context) bool {
	part := &t.part
	part.Decisions = make([]limit.Decision, len(part.Charges))
	script := limit.ScriptOf(part.Charges)
	p := redis.Pending{Script: scripts[script]}
	p.Keys, p.Arguments, p.Replies = script.Append(nil, nil, part.Charges, false)
	p.Err = t.server.Look(ctx, &p)
	if decide(script, &p, part) != nil {
		return false
	}
	for i, place := range t.places {
		t.question.request.Decisions[place] = part.Decisions[i]
	}
	return !slices.ContainsFunc(part.Decisions, func(d limit.Decision) bool { return d.Outcome == limit.Undecided })
}
