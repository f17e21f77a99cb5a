package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	leastPatience = 50 * time.Microsecond // the shortest time worth asking in
	mostRequests  = 64                    // of one batch
)

// purpose is why a question is asked.
type purpose uint8

const (
	deciding purpose = iota
	peeking          // what is known here does not answer it
	undoing          // it gives back what a refused request took: also if its caller does not wait
)

// question is one request on its way through the servers, in one trip or in several. Its memory is used again unless
// its caller left a trip.
type question struct {
	store   *Redis
	request *limit.Request
	began   time.Time // by RedisConfig.Now, before anything was sent
	due     time.Time
	purpose purpose
	refused bool    // an enforced charge is known to be refused: only charges with Each take
	left    bool    // its caller left a trip
	first   trip    // the memory of the first of
	trips   []*trip // of all rounds
	sent    int     // so many of them
	round   []*trip // of these the last, which are under way
	timer   *time.Timer
	open    []spot           // the charges that are not known
	batch   []*redis.Pending // that leaves together
}

// begin sends what has to be asked.
func (r *Redis) begin(ctx context.Context, request *limit.Request, why purpose) *question {
	q, now := r.questions.Get().(*question), time.Now()
	q.request, q.began, q.due, q.purpose = request, r.cfg.Now(), now.Add(r.cfg.Patience), why
	if !request.Due.IsZero() && request.Due.Before(q.due) {
		q.due = request.Due
	}
	clear(request.Decisions)
	if q.due.Sub(now) < leastPatience && why != undoing {
		undecide(request.Decisions, redis.ReasonDeadline, false)
		return q
	}
	q.refused = why == deciding && r.denials.Known(request, q.began, false)
	q.divide()
	if r.cfg.Leases && len(q.trips) > 0 && why != undoing {
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

// finish waits for what was sent, sends further rounds, and does what follows from the decisions.
func (q *question) finish(ctx context.Context) {
	for len(q.round) > 0 {
		for _, t := range q.round {
			t.await()
		}
		q.refused = q.refused || limit.Refuses(q.request.Charges, q.request.Decisions)
		q.send(ctx)
	}
	r := q.store
	if q.purpose != undoing {
		r.denials.Known(q.request, r.cfg.Now(), true)
	}
	if len(q.trips) > 1 && limit.Refuses(q.request.Charges, q.request.Decisions) {
		q.undo(ctx)
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
	t := &q.first
	clear(t.part.Charges)
	clear(t.pending.Keys)
	t.part.Charges, t.part.Fate, t.places = t.part.Charges[:0], nil, t.places[:0]
	t.home, t.before, t.after, t.ended = home{}, nil, nil, nil
	clear(q.trips)
	clear(q.batch)
	q.request, q.trips, q.sent, q.round = nil, q.trips[:0], 0, nil
	q.store.questions.Put(q)
}

// heal deletes keys of a charge, of its counter or its penalty, if one of them holds a value that no limit wrote: the
// next charge begins a new counter. It looks again, because others may have healed them. While another request heals,
// or where the time is short, it is left to a later one.
func (q *question) heal(ctx context.Context, c *limit.Charge, keys ...string) {
	r := q.store
	if !r.healing.TryLock() {
		return
	}
	defer r.healing.Unlock()
	ctx, cancel := context.WithDeadline(ctx, q.due)
	defer cancel()
	if !slices.ContainsFunc(keys, func(key string) bool { return r.isForeign(ctx, c, key) }) {
		return
	}
	err := unlink(ctx, r.clientOf(c), keys)
	if err != nil {
		r.cfg.OnError(redis.Reason(err), fmt.Errorf("delete a counter that holds a foreign value: %w", err))
		return
	}
	r.Drop(keys)
	r.healed.Add(1)
	r.cfg.OnError(redis.ReasonWrong, errors.New("a key held a value that no limit wrote, and was deleted"))
}

// isForeign asks for a counter alone, or for the length of a list.
func (r *Redis) isForeign(ctx context.Context, c *limit.Charge, key string) bool {
	if key != c.Key {
		_, err := r.clientOf(c).Run(ctx, key, "LLEN", key)
		return redis.Reason(err) == redis.ReasonWrong
	}
	charges := []limit.Charge{{Key: c.Key, Limit: c.Limit, Op: limit.Peek, Cost: 1}}
	look := limit.Request{Charges: charges, Decisions: make([]limit.Decision, 1)}
	r.Peek(ctx, &look)
	return look.Decisions[0].Reason == limit.ReasonForeign
}

// trip is charges of a request that go to one home in one run of a script, and come back decided.
type trip struct {
	home
	question *question
	part     limit.Request    // copies of the charges
	places   []int            // part.Charges[i] is the charge places[i] of the request
	turn     int              // atOnce turns are one round
	before   []*redis.Pending // of leases: they return in front of it
	after    []*redis.Pending // of leases: they lend behind it

	script  *limit.Script
	pending redis.Pending
	ended   func(reason string) // of RedisConfig.OnTrip; nil: nothing is called
}

func (t *trip) round() int { return t.turn / atOnce }

// scripts are those of package limit as they are sent.
var scripts = map[*limit.Script]*redis.Script{
	limit.Tree:     redis.NewScript(limit.Tree.Text, false),
	limit.Together: redis.NewScript(limit.Together.Text, false),
	limit.Log:      redis.NewScript(limit.Log.Text, false),
	limit.Punish:   redis.NewScript(limit.Punish.Text, true),
}

// encode writes the trip's charges.
func (t *trip) encode(ctx context.Context) {
	q, charges := t.question, t.part.Charges
	t.part.Decisions = slices.Grow(t.part.Decisions[:0], len(charges))[:len(charges)]
	if q.store.cfg.OnTrip != nil {
		t.ended = q.store.cfg.OnTrip(ctx, t.server.Name(), len(charges))
	}
	q.store.sent.Add(1)
	t.script = limit.ScriptOf(charges)
	p := &t.pending
	p.Script, p.Charges, p.Due, p.Keep, p.Late = scripts[t.script], len(charges), q.due, q.purpose == undoing, nil
	p.Keys, p.Arguments, p.Replies = t.script.Append(p.Keys[:0], p.Arguments[:0], charges, q.refused)
}

var errLate = errors.New("no reply in time")

// await waits until the trip is over, or as long as its caller may wait, and puts its decisions in their places.
func (t *trip) await() {
	q, err := t.question, errLate
	left := !wait(&t.pending, q.due, q.timer) && t.leave()
	if !left {
		err = t.decide()
	}
	for i, place := range t.places {
		q.request.Decisions[place] = limit.Decision{Reason: redis.ReasonTimeout, Unknown: true}
		if !left {
			q.request.Decisions[place] = t.part.Decisions[i]
		}
	}
	reason := q.request.Decisions[t.places[0]].Reason
	if err != nil {
		q.store.undecided.Add(1)
		q.store.cfg.OnError(reason, err)
	}
	if t.ended != nil {
		t.ended(reason)
	}
}

// wait waits until a request is over or due, and reports whether it is over.
func wait(p *redis.Pending, due time.Time, timer *time.Timer) bool {
	timer.Reset(time.Until(due))
	defer timer.Stop()
	select {
	case <-p.Done():
		return true
	case <-timer.C:
		return false
	}
}

// leave ends the wait for a trip and reports true, or false if the trip is over just now.
func (t *trip) leave() bool {
	request := t.question.request
	for i, place := range t.places {
		t.part.Charges[i].Mode = request.Charges[place].Mode // quotas are quotas again
	}
	if request.Fate == nil {
		request.Fate = new(limit.Fate)
	}
	t.part.Fate = request.Fate
	t.pending.Late = func(*redis.Pending) { t.arrived() }
	left := t.pending.Leave() // from now on it belongs to the worker that brings the reply
	t.question.left = t.question.left || left
	return left
}

// arrived takes in what became of a trip whose caller left. It runs on the worker that brings the reply.
func (t *trip) arrived() {
	r := t.question.store
	err := t.decide()
	if err == nil {
		r.late.Add(1)
	}
	r.denials.Learn(&t.part, t.question.began, r.cfg.Now())
	if t.question.purpose == deciding {
		r.cfg.OnLate(&t.part, err)
	}
}

// decide decides the charges. What could not be given back is counted, and stays taken until time gives it back: it is
// not known whether it was given.
func (t *trip) decide() error {
	r, part := t.question.store, &t.part
	err := decide(t.script, &t.pending, part)
	if part.Decisions[0].Unknown {
		r.unknown.Add(1)
	}
	for i := range part.Decisions {
		if t.question.purpose == undoing && part.Decisions[i].Outcome == limit.Undecided {
			r.notReturned.Add(part.Charges[i].Cost)
		}
	}
	return err
}

// decide decides charges by a reply. By an error in place of one they are undecided.
func decide(script *limit.Script, p *redis.Pending, part *limit.Request) error {
	if p.Err != nil {
		undecide(part.Decisions, redis.Reason(p.Err), redis.MayHaveRun(p.Err))
		return p.Err
	}
	err := script.Decide(p.Reply, part.Charges, part.Decisions)
	if err != nil {
		undecide(part.Decisions, redis.ReasonReply, true)
		return fmt.Errorf("read the reply of the script %s: %w", script.Name, err)
	}
	return nil
}

func undecide(decisions []limit.Decision, reason string, unknown bool) {
	for i := range decisions {
		decisions[i] = limit.Decision{Reason: reason, Unknown: unknown}
	}
}
