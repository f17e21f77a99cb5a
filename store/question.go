package store

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	leastPatience = 50 * time.Microsecond // the shortest time worth asking in
	mostRequests  = 64                    // of one batch
)

// question is one request on its way through Ask or Peek, in one trip or in several. Its memory is used again.
type question struct {
	store   *Redis
	request *limit.Request
	began   time.Time // by RedisConfig.Now, before anything was sent
	due     time.Time
	fresh   bool    // what is known here does not answer it
	refused bool    // an enforced charge is known to be refused: only charges with Each take
	trips   []*trip // of all rounds
	round   int     // the one that is under way
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
	q.request, q.began, q.due = request, r.cfg.Now(), now.Add(r.cfg.Patience)
	q.fresh, q.refused, q.round = fresh, false, -1
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
	q.send(ctx)
	return q
}

// send sends the trips of the next round, and reports whether there are any. Those of one server leave together, as
// far as they fit into one batch.
func (q *question) send(ctx context.Context) bool {
	next := math.MaxInt
	for _, t := range q.trips {
		if !t.sent {
			next = min(next, t.turn/atOnce)
		}
	}
	if next == math.MaxInt {
		return false
	}
	q.round = next
	for i, t := range q.trips {
		if t.turn/atOnce == next && !t.sent {
			q.sendTo(ctx, t.server, q.trips[i:])
		}
	}
	return true
}

// sendTo sends a batch of trips of the round to a server. No caller waits for the requests of leases around them.
func (q *question) sendTo(ctx context.Context, server *redis.Server, trips []*trip) {
	q.batch = q.batch[:0]
	charges, loans := 0, []*loan(nil)
	for _, t := range trips {
		if t.server != server || t.turn/atOnce != q.round || t.sent {
			continue
		}
		charges += len(t.places) + len(t.before) + len(t.after)
		requests := len(q.batch) + 1 + len(t.before) + len(t.after)
		if len(q.batch) > 0 && (charges > limit.MaxTogether || requests > mostRequests) {
			break
		}
		q.store.encode(ctx, t, q.refused, q.due)
		q.batch = t.append(q.batch)
		loans = append(append(loans, t.before...), t.after...)
	}
	server.Do(q.batch...)
	clear(q.batch)
	for _, l := range loans {
		l.leave()
	}
}

// receive waits for the trips of the round, and puts their decisions in their places.
func (q *question) receive() {
	for _, t := range q.trips {
		if t.turn/atOnce != q.round {
			continue
		}
		q.await(t)
		for i, place := range t.places {
			q.request.Decisions[place] = t.decision(i)
		}
	}
	q.refused = q.refused || limit.Refuses(q.request.Charges, q.request.Decisions)
}

// finish waits for what was sent, sends further rounds, and does what follows from the decisions.
func (q *question) finish(ctx context.Context) {
	for more := len(q.trips) > 0; more; more = q.send(ctx) {
		q.receive()
	}
	q.decideOpen()
	asked := len(q.trips)
	if asked > 1 && limit.Refuses(q.request.Charges, q.request.Decisions) {
		q.giveBack(ctx)
	}
	q.punish()
	q.learn(asked)
	for _, t := range q.trips {
		q.store.recycle(t)
	}
	clear(q.trips)
	q.trips, q.request = q.trips[:0], nil
	q.store.questions.Put(q)
}

// decideOpen decides charges that the store left undecided by what is known.
func (q *question) decideOpen() {
	r := q.store
	isOpen := func(d limit.Decision) bool { return d.Outcome == limit.Undecided }
	if r.denials != nil && !q.fresh && slices.ContainsFunc(q.request.Decisions, isOpen) {
		r.denials.Known(q.request, r.cfg.Now())
	}
}

// learn keeps what the replies show, those to what was asked and then those to what was given back.
func (q *question) learn(asked int) {
	r := q.store
	if asked > 0 {
		r.learn(q.request, q.began)
	}
	for _, t := range q.trips[asked:] {
		if !t.left {
			r.learn(&t.part, q.began)
		}
	}
	if r.leases != nil {
		r.leases.Learn(q.request, q.began)
	}
}

// learn keeps what replies show of spent counters.
func (r *Redis) learn(part *limit.Request, began time.Time) {
	if r.denials != nil {
		r.denials.Learn(part, began, r.cfg.Now())
	}
}
