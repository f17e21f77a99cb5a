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

// trip is charges of a request that go to one home in one run of a script, and come back decided.
type trip struct {
	home
	question *question
	part     limit.Request    // copies of the charges
	places   []int            // part.Charges[i] is the charge places[i] of the request
	turn     int              // atOnce turns are one round
	undoes   bool             // it gives back what a refused request took
	before   []*redis.Pending // of leases: they return in front of it
	after    []*redis.Pending // of leases: they lend behind it

	script  *limit.Script
	pending redis.Pending
	left    bool                // its caller left, so it belongs to the worker that brings the reply
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

func (t *trip) add(c limit.Charge, place int) {
	t.part.Charges, t.places = append(t.part.Charges, c), append(t.places, place)
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
	p.Script, p.Charges, p.Due, p.Keep, p.Late = scripts[t.script], len(charges), q.due, t.undoes, nil
	p.Keys, p.Arguments, p.Replies = t.script.Append(p.Keys[:0], p.Arguments[:0], charges, q.refused && !t.undoes)
}

var errLate = errors.New("no reply in time")

// await waits until the trip is over, or as long as its caller may wait.
func (t *trip) await() {
	q, err := t.question, errLate
	if wait(&t.pending, q.due, q.timer) || !t.leave() {
		err = t.decide()
	}
	reason := t.decision(0).Reason
	if err != nil {
		q.store.undecided.Add(1)
		q.store.cfg.OnError(reason, err)
	}
	if t.ended != nil {
		t.ended(reason)
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
	t.left = t.pending.Leave()
	t.question.left = t.question.left || t.left
	return t.left
}

// arrived takes in what became of a trip whose caller left. It runs on the worker that brings the reply.
func (t *trip) arrived() {
	r := t.question.store
	err := t.decide()
	if err == nil {
		r.late.Add(1)
	}
	r.denials.Learn(&t.part, t.question.began, r.cfg.Now())
	if t.undoes {
		r.countNotReturned(&t.part)
	} else {
		r.cfg.OnLate(&t.part, err)
	}
}

// decide decides the charges.
func (t *trip) decide() error {
	err := decide(t.script, &t.pending, &t.part)
	if t.part.Decisions[0].Unknown {
		t.question.store.unknown.Add(1)
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

// recycle lets go of what belongs to others, and keeps the memory.
func (t *trip) recycle() {
	clear(t.part.Charges)
	clear(t.pending.Keys)
	t.part.Charges, t.part.Fate, t.places = t.part.Charges[:0], nil, t.places[:0]
	t.home, t.undoes, t.before, t.after, t.ended = home{}, false, nil, nil, nil
}
