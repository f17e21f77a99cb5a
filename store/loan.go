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

// loan is a request of leases on its way: one that lends, or one that brings back. It is sent also if no caller waits for it.
type loan struct {
	store   *Redis
	request *limit.Request
	lends   bool
	script  *limit.Script
	pending redis.Pending
	began   time.Time // before it was sent
}

func (r *Redis) newLoan(request *limit.Request, script *limit.Script, lends bool) *loan {
	l := &loan{store: r, request: request, lends: lends, script: script, began: r.now()}
	p := &l.pending
	p.Script, p.Charges, p.Keep, p.Late = scripts[script], len(request.Charges), true, l.over
	p.Keys, p.Arguments, p.Replies = script.Append(nil, nil, request.Charges, false)
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
	r, request := l.store, l.request
	err := decide(l.script, p, request.Charges, request.Decisions)
	switch {
	case l.lends:
		r.leases.Granted(request, l.began)
	case err != nil:
		r.leases.Lost(request)
	default:
		r.learn(request, l.began)
	}
}

// surround puts the requests of leases beside the trips to their counters.
func (q *question) surround() {
	before, after := q.store.leases.Around(q.request, q.began)
	for _, request := range before {
		if t := q.tripTo(request); t != nil {
			t.before = append(t.before, request)
		} else {
			q.store.sendLoan(request, false).leave()
		}
	}
	for _, request := range after {
		if t := q.tripTo(request); t != nil {
			t.after = append(t.after, request)
		} else {
			q.store.sendLoan(request, true).leave()
		}
	}
}

// tripTo is the first trip that goes to the counter of a request of leases, nil where that counter is not asked about.
func (q *question) tripTo(request *limit.Request) *trip {
	var first *trip
	h := q.store.homeOf(&request.Charges[0])
	for _, t := range q.trips {
		if t.home == h && (first == nil || t.round < first.round) {
			first = t
		}
	}
	return first
}

// sendLoan sends a request of leases alone.
func (r *Redis) sendLoan(request *limit.Request, lends bool) *loan {
	l := r.newLoan(request, limit.ScriptOf(request.Charges), lends)
	r.homeOf(&request.Charges[0]).server.Do(&l.pending)
	return l
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
			r.main.Guard(func() { r.sendBack(r.leases.Ended(r.now())) })
		}
	}
}

// sendBack sends requests of leases that bring back.
func (r *Redis) sendBack(requests []*limit.Request) {
	for _, request := range requests {
		r.sendLoan(request, false).leave()
	}
}

// returnAll returns what is on lease, and waits a moment for the replies.
func (r *Redis) returnAll() {
	var loans []*loan
	for _, request := range r.leases.Clear() {
		loans = append(loans, r.sendLoan(request, false))
	}
	timer, due := time.NewTimer(returnWithin), time.Now().Add(returnWithin)
	defer timer.Stop()
	for _, l := range loans {
		if wait(&l.pending, due, timer) {
			l.over(&l.pending)
		} else {
			l.leave()
		}
	}
}
