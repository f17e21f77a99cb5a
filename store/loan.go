package store

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	lookEvery    = 10 * time.Millisecond  // for leases that are over soon
	returnWithin = 100 * time.Millisecond // how long Close waits for the replies to what it returns
)

// loan makes ready what leases send: a request that lends, or one that brings back. It is sent also if no caller waits
// for it.
func (r *Redis) loan(request *limit.Request, lends bool) *redis.Pending {
	p, began := &redis.Pending{Script: scripts[limit.Together], Charges: 1, Keep: true}, r.cfg.Now()
	p.Keys, p.Arguments, p.Replies = limit.Together.Append(nil, nil, request.Charges, false)
	p.Late = func(p *redis.Pending) {
		err := decide(limit.Together, p, request)
		switch {
		case lends:
			r.leases.Granted(request, began)
		case err != nil:
			r.leases.Lost(request)
		default:
			r.denials.Learn(request, began, r.cfg.Now())
		}
	}
	return p
}

// leave lets the worker that brings the reply take it in, unless it is there.
func leave(loan *redis.Pending) {
	if !loan.Leave() {
		loan.Late(loan)
	}
}

// surround puts the requests of leases beside the trips to their counters.
func (q *question) surround() {
	before, after := q.store.leases.Around(q.request, q.began)
	for i, request := range append(before, after...) {
		lends, h := i >= len(before), q.store.homeOf(&request.Charges[0])
		loan := q.store.loan(request, lends)
		switch at := slices.IndexFunc(q.trips, func(t *trip) bool { return t.home == h }); {
		case at < 0: // its counter is not asked about
			h.server.Do(loan)
			leave(loan)
		case lends:
			q.trips[at].after = append(q.trips[at].after, loan)
		default:
			q.trips[at].before = append(q.trips[at].before, loan)
		}
	}
}

// sendBack sends requests that bring back, and waits so long for the replies.
func (r *Redis) sendBack(requests []*limit.Request, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var loans []*redis.Pending
	for _, request := range requests {
		loan := r.loan(request, false)
		loans = append(loans, loan)
		r.homeOf(&request.Charges[0]).server.Do(loan)
	}
	for _, loan := range loans {
		select {
		case <-loan.Done():
		case <-ctx.Done():
		}
		leave(loan)
	}
}
