package store

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	lookEvery    = 10 * time.Millisecond  // for leases that are over soon
	returnWithin = 100 * time.Millisecond // how long Close waits for the replies to what it returns
)

// loan is a request of leases on its way: one that lends, or one that brings back. It is sent also if no caller waits
// for it.
type loan struct {
	store   *Redis
	request *limit.Request
	lends   bool
	pending redis.Pending
	began   time.Time // before it was sent
}

func (r *Redis) newLoan(request *limit.Request, lends bool) *loan {
	l := &loan{store: r, request: request, lends: lends, began: r.cfg.Now()}
	p := &l.pending
	p.Script, p.Charges, p.Keep, p.Late = scripts[limit.Together], len(request.Charges), true, l.over
	p.Keys, p.Arguments, p.Replies = limit.Together.Append(nil, nil, request.Charges, false)
	return l
}

// leave lets the worker that brings the reply take it in, unless it is there.
func (l *loan) leave() {
	if !l.pending.Leave() {
		l.over(&l.pending)
	}
}

// over takes in what became of the request.
func (l *loan) over(p *redis.Pending) {
	err := decide(limit.Together, p, l.request)
	switch {
	case l.lends:
		l.store.leases.Granted(l.request, l.began)
	case err != nil:
		l.store.leases.Lost(l.request)
	default:
		l.store.learn(l.request, l.began)
	}
}

// send sends it alone.
func (l *loan) send() *loan {
	l.store.homeOf(&l.request.Charges[0]).server.Do(&l.pending)
	return l
}

// surround puts the requests of leases beside the trips to their counters.
func (q *question) surround() {
	before, after := q.store.leases.Around(q.request, q.began)
	for i, request := range append(before, after...) {
		lends := i >= len(before)
		l := q.store.newLoan(request, lends)
		switch t := q.tripTo(l); {
		case t == nil:
			l.send().leave()
		case lends:
			t.after = append(t.after, l)
		default:
			t.before = append(t.before, l)
		}
	}
}

// tripTo is the first trip to where a request of leases goes, nil where its counter is not asked about.
func (q *question) tripTo(l *loan) (first *trip) {
	h := q.store.homeOf(&l.request.Charges[0])
	for _, t := range q.trips {
		if t.home == h && (first == nil || t.turn < first.turn) {
			first = t
		}
	}
	return first
}

// returnEnded returns what is left of leases that are over soon or not used, until the context ends.
func (r *Redis) returnEnded(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.guard(func() { r.sendBack(r.leases.Ended(r.cfg.Now())) })
		}
	}
}

// sendBack sends requests of leases that bring back.
func (r *Redis) sendBack(requests []*limit.Request) {
	for _, request := range requests {
		r.newLoan(request, false).send().leave()
	}
}

// returnAll returns what is on lease, and waits a moment for the replies.
func (r *Redis) returnAll() {
	var loans []*loan
	for _, request := range r.leases.Clear() {
		loans = append(loans, r.newLoan(request, false).send())
	}
	timer, due := time.NewTimer(returnWithin), time.Now().Add(returnWithin)
	defer timer.Stop()
	for _, l := range loans {
		wait(&l.pending, due, timer)
		l.leave()
	}
}
