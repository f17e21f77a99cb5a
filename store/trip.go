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

// trip is charges of a request that go to one home in one run of a script, and come back decided. Its memory is used
// again unless its caller left.
type trip struct {
	home
	part   limit.Request // copies of the charges
	places []int         // part.Charges[i] is the charge places[i] of the request
	turn   int           // atOnce turns are one round
	undoes bool          // it gives back what a refused request took
	before []*loan       // returned in front of it
	after  []*loan       // lent behind it

	script  *limit.Script
	pending redis.Pending
	sent    bool
	left    bool                // its caller left, so it belongs to the worker that brings the reply
	ended   func(reason string) // of RedisConfig.OnTrip; nil: nothing is called
}

// scripts are those of package limit as they are sent.
var scripts = map[*limit.Script]*redis.Script{
	limit.Tree:     redis.NewScript(limit.Tree.Text, false),
	limit.Together: redis.NewScript(limit.Together.Text, false),
	limit.Log:      redis.NewScript(limit.Log.Text, false),
	limit.Punish:   redis.NewScript(limit.Punish.Text, true),
}

func (t *trip) add(c limit.Charge, place int) {
	t.part.Charges, t.places = append(t.part.Charges, c), append(t.places, place)
}

// encode writes the trip's charges.
func (r *Redis) encode(ctx context.Context, t *trip, refused bool, due time.Time) {
	charges := t.part.Charges
	t.sent, t.part.Decisions = true, slices.Grow(t.part.Decisions[:0], len(charges))[:len(charges)]
	if r.cfg.OnTrip != nil {
		t.ended = r.cfg.OnTrip(ctx, t.server.Name(), len(charges))
	}
	r.sent.Add(1)
	t.script = limit.ScriptOf(charges)
	p := &t.pending
	p.Script, p.Charges, p.Due, p.Keep, p.Late = scripts[t.script], len(charges), due, t.undoes, nil
	p.Keys, p.Arguments, p.Replies = t.script.Append(p.Keys[:0], p.Arguments[:0], charges, refused)
}

// append appends what is sent for the trip, in the order in which it has to run.
func (t *trip) append(batch []*redis.Pending) []*redis.Pending {
	for _, l := range t.before {
		batch = append(batch, &l.pending)
	}
	batch = append(batch, &t.pending)
	for _, l := range t.after {
		batch = append(batch, &l.pending)
	}
	return batch
}

var errLate = errors.New("no reply in time")

// await waits until the trip is over, or as long as its caller may wait.
func (q *question) await(t *trip) {
	if !wait(&t.pending, q.due, q.timer) && q.leave(t) {
		q.store.report(redis.ReasonTimeout, errLate)
	} else {
		q.store.read(t)
	}
	if t.ended != nil {
		t.ended(t.decision(0).Reason)
	}
}

// decision is the one about a charge, for the caller.
func (t *trip) decision(i int) limit.Decision {
	if t.left {
		return limit.Decision{Reason: redis.ReasonTimeout, Unknown: true}
	}
	return t.part.Decisions[i]
}

// wait waits until a request is over or due, and reports whether it is over.
func wait(p *redis.Pending, due time.Time, timer *time.Timer) bool {
	select {
	case <-p.Done():
		return true
	default:
	}
	timer.Reset(time.Until(due))
	select {
	case <-p.Done():
		timer.Stop()
		return true
	case <-timer.C:
		return false
	}
}

// leave ends the wait for a trip and reports true, or false if the trip is over just now.
func (q *question) leave(t *trip) bool {
	for i, place := range t.places {
		t.part.Charges[i].Mode = q.request.Charges[place].Mode // quotas are quotas again
	}
	if q.request.Fate == nil {
		q.request.Fate = new(limit.Fate)
	}
	t.part.Fate = q.request.Fate
	r, began := q.store, q.began
	t.pending.Late = func(*redis.Pending) { r.arrived(t, began) }
	t.left = t.pending.Leave()
	return t.left
}

// arrived takes in what became of a trip whose caller left. It runs on the worker that brings the reply.
func (r *Redis) arrived(t *trip, began time.Time) {
	part := &t.part
	err := decide(t.script, &t.pending, part)
	switch {
	case err == nil:
		r.late.Add(1)
	case part.Decisions[0].Unknown:
		r.unknown.Add(1)
	}
	r.learn(part, began)
	if t.undoes {
		r.countNotReturned(part)
	} else {
		r.cfg.OnLate(Late{part.Charges, part.Decisions, err, part.Fate})
	}
}

// read decides the trip by its reply, or leaves it undecided by the error in place of one.
func (r *Redis) read(t *trip) {
	err, part := decide(t.script, &t.pending, &t.part), &t.part
	if err != nil {
		if part.Decisions[0].Unknown {
			r.unknown.Add(1)
		}
		r.report(part.Decisions[0].Reason, err)
		return
	}
	for i := range part.Decisions {
		if part.Decisions[i].Reason == limit.ReasonForeign {
			r.noteForeign(&part.Charges[i], false)
		}
	}
}

// report counts a trip that stays undecided.
func (r *Redis) report(reason string, err error) {
	r.undecided.Add(1)
	r.cfg.OnError(reason, err)
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

// recycle lets go of what belongs to others, and keeps the trip's memory for the next one.
func (r *Redis) recycle(t *trip) {
	if t.left {
		return
	}
	clear(t.part.Charges)
	clear(t.pending.Keys)
	t.home, t.part.Charges, t.places, t.undoes = home{}, t.part.Charges[:0], t.places[:0], false
	t.part.Fate, t.before, t.after, t.sent, t.ended = nil, nil, nil, false, nil
	r.trips.Put(t)
}
