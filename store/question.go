package store

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	leastPatience = 50 * time.Microsecond // the shortest time worth asking in
	mostRequests  = 64                    // of one batch
)

// question is one request on its way through Ask or Peek, in one trip or in several. Its memory is used again unless
// its caller left a trip.
type question struct {
	store   *Redis
	request *limit.Request
	began   time.Time // by RedisConfig.Now, before anything was sent
	due     time.Time
	fresh   bool    // what is known here does not answer it
	refused bool    // an enforced charge is known to be refused: only charges with Each take
	left    bool    // its caller left a trip
	first   trip    // the memory of the first of
	trips   []*trip // of all rounds
	sent    int     // so many of them
	round   []*trip // of these the last, which are under way
	timer   *time.Timer
	batch   []*redis.Pending // that leaves together
}

func newQuestion(r *Redis) *question {
	q := &question{store: r, timer: time.NewTimer(time.Hour)}
	q.timer.Stop()
	return q
}

// begin sends what has to be asked. A request that is fresh is not answered by what is known here.
func (r *Redis) begin(ctx context.Context, request *limit.Request, fresh bool) *question {
	q, now := r.questions.Get().(*question), time.Now()
	q.request, q.began, q.due, q.fresh = request, r.cfg.Now(), now.Add(r.cfg.Patience), fresh
	if !request.Due.IsZero() && request.Due.Before(q.due) {
		q.due = request.Due
	}
	clear(request.Decisions)
	if q.due.Sub(now) < leastPatience {
		undecide(request.Decisions, redis.ReasonDeadline, false)
		return q
	}
	q.refused = !fresh && r.denials.Known(request, q.began)
	q.divide()
	if r.cfg.Leases && len(q.trips) > 0 {
		q.surround()
	}
	q.send(ctx)
	return q
}

// send sends the trips of the next round, if there is one. Those of one server leave together, as far as they fit into
// one batch.
func (q *question) send(ctx context.Context) {
	rest := q.trips[q.sent:]
	n := 0
	for n < len(rest) && rest[n].round() == rest[0].round() {
		n++
	}
	q.round = rest[:n]
	q.sent += n
	for i := 0; i < n; {
		i += q.sendBatch(ctx, q.round[i:])
	}
}

// sendBatch sends the first of these trips, and those behind it that fit into its batch, and returns how many. No
// caller waits for the requests of leases around them.
func (q *question) sendBatch(ctx context.Context, trips []*trip) (n int) {
	q.batch = q.batch[:0]
	charges, server := 0, trips[0].server
	for _, t := range trips {
		charges += len(t.places) + len(t.before) + len(t.after)
		requests := len(q.batch) + 1 + len(t.before) + len(t.after)
		if t.server != server || n > 0 && (charges > limit.MaxTogether || requests > mostRequests) {
			break
		}
		t.encode(ctx)
		q.batch = append(append(append(q.batch, t.before...), &t.pending), t.after...)
		n++
	}
	server.Do(q.batch...)
	for _, t := range trips[:n] {
		for _, loan := range append(t.before, t.after...) {
			leave(loan)
		}
	}
	return n
}

// receive waits for the trips of the round, and puts their decisions in their places.
func (q *question) receive() {
	for _, t := range q.round {
		t.await()
		for i, place := range t.places {
			q.request.Decisions[place] = t.decision(i)
		}
	}
	q.refused = q.refused || limit.Refuses(q.request.Charges, q.request.Decisions)
}

// finish waits for what was sent, sends further rounds, and does what follows from the decisions.
func (q *question) finish(ctx context.Context) {
	for len(q.round) > 0 {
		q.receive()
		q.send(ctx)
	}
	r, isOpen := q.store, func(d limit.Decision) bool { return d.Outcome == limit.Undecided }
	if !q.fresh && slices.ContainsFunc(q.request.Decisions, isOpen) {
		r.denials.Known(q.request, r.cfg.Now())
	}
	if len(q.trips) > 1 && limit.Refuses(q.request.Charges, q.request.Decisions) {
		q.giveBack(ctx)
	}
	q.punish(ctx)
	for i := range q.request.Charges {
		if c := &q.request.Charges[i]; q.request.Decisions[i].Reason == limit.ReasonForeign {
			q.heal(ctx, c, c.Key)
		}
	}
	r.denials.Learn(q.request, q.began, r.cfg.Now())
	r.leases.Learn(q.request, q.began)
	q.recycle()
}

// recycle lets go of what belongs to others, and keeps the memory for the next question.
func (q *question) recycle() {
	if q.left {
		return
	}
	q.first.recycle()
	clear(q.trips)
	clear(q.batch)
	q.request, q.trips, q.sent, q.round = nil, q.trips[:0], 0, nil
	q.store.questions.Put(q)
}
