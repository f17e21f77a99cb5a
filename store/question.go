package store

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// leastPatience is the shortest time worth asking in. A call that is sure to miss its deadline would only cost the server work.
const leastPatience = 50 * time.Microsecond

// question is one request on its way through Ask or Peek, in one trip or in several. Its memory is used again.
type question struct {
	store   *Redis
	request *limit.Request
	began   time.Time // by Config.Now, before anything was sent
	due     time.Time
	fresh   bool    // what is known here does not answer it
	refused bool    // an enforced charge is known to be refused: only charges with Each take
	trips   []*trip // of all rounds
	round   int     // the one that is under way
	last    int     // the last one
	timer   *time.Timer
	batch   batch
}

func newQuestion(r *Redis) *question {
	q := &question{store: r, timer: time.NewTimer(time.Hour)}
	q.timer.Stop()
	return q
}

// begin sends what has to be asked. A request that is fresh is not answered by what is known here.
func (r *Redis) begin(ctx context.Context, request *limit.Request, fresh bool) *question {
	q, now := r.questions.Get().(*question), time.Now()
	q.request, q.began, q.due = request, r.now(), now.Add(r.patience)
	q.fresh, q.refused, q.round, q.last = fresh, false, 0, 0
	if !request.Due.IsZero() && request.Due.Before(q.due) {
		q.due = request.Due
	}
	clear(request.Decisions)
	if q.due.Sub(now) < leastPatience {
		undecide(request.Decisions, redis.ReasonDeadline, false)
		return q
	}
	if r.denials != nil && !fresh {
		q.refused = r.denials.Known(request, q.began)
	}
	q.divide()
	if r.leases != nil && len(q.trips) > 0 {
		q.surround()
	}
	q.dispatch(ctx)
	return q
}

// finish waits for what was sent, sends further rounds, and does what follows from the decisions.
func (q *question) finish(ctx context.Context) {
	r, request := q.store, q.request
	q.await()
	for q.round < q.last {
		q.refused = q.refused || limit.Refuses(request.Charges, request.Decisions)
		q.round++
		q.dispatch(ctx)
		q.await()
	}
	if r.denials != nil && !q.fresh && hasOpen(request.Decisions) {
		r.denials.Known(request, r.now())
	}
	if len(q.trips) > 1 && limit.Refuses(request.Charges, request.Decisions) {
		q.giveBack(ctx)
	}
	q.punish()
	if len(q.trips) > 0 {
		r.learn(request, q.began)
	}
	for _, t := range q.trips {
		if t.undoes && !t.left {
			r.learn(&limit.Request{Charges: t.charges, Decisions: t.decisions}, q.began)
		}
	}
	if r.leases != nil {
		r.leases.Learn(request, q.began)
	}
	for _, t := range q.trips {
		r.recycle(t)
	}
	clear(q.trips)
	q.trips, q.request = q.trips[:0], nil
	r.questions.Put(q)
}

// await waits for the trips of the round, and puts their decisions in their places.
func (q *question) await() {
	for _, t := range q.trips {
		if t.round != q.round {
			continue
		}
		q.store.await(t, q.timer, q.request, q.began)
		for i, place := range t.places {
			q.request.Decisions[place] = t.decisions[i]
		}
	}
}

// learn keeps what replies show of spent counters.
func (r *Redis) learn(request *limit.Request, began time.Time) {
	if r.denials != nil {
		r.denials.Learn(request, began, r.now())
	}
}

// hasOpen reports whether a charge is not decided.
func hasOpen(decisions []limit.Decision) bool {
	for i := range decisions {
		if decisions[i].Outcome == limit.Undecided {
			return true
		}
	}
	return false
}
