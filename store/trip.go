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

// trip is charges that go to one home in one run of a script, and come back decided. Its memory is used again unless its
// caller left.
type trip struct {
	home
	charges   []limit.Charge   // the request's own where all of it goes in this trip
	decisions []limit.Decision // likewise
	places    []int            // charges[i] is the charge places[i] of the request; empty: the trip is all of it
	round     int              // in which it is sent
	undoes    bool             // it gives back what a refused request took
	before    []*loan          // returned in front of it
	after     []*loan          // lent behind it

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

// encode writes the trip's charges.
func (r *Redis) encode(ctx context.Context, t *trip, refused bool, due time.Time) {
	t.sent = true
	if len(t.places) > 0 {
		t.decisions = slices.Grow(t.decisions[:0], len(t.charges))[:len(t.charges)]
		clear(t.decisions)
	}
	if r.cfg.OnTrip != nil {
		t.ended = r.cfg.OnTrip(ctx, t.server.Name(), len(t.charges))
	}
	r.sent.Add(1)
	t.script = limit.ScriptOf(t.charges)
	p := &t.pending
	p.Script, p.Charges, p.Due, p.Keep, p.Late = scripts[t.script], len(t.charges), due, t.undoes, nil
	p.Keys, p.Arguments, p.Replies = t.script.Append(p.Keys[:0], p.Arguments[:0], t.charges, refused)
}

// await waits until the trip is over, or as long as its caller may wait, and decides it.
func (q *question) await(t *trip) {
	r := q.store
	if !wait(&t.pending, q.due, q.timer) && r.leave(t, q.request, q.began) {
		undecide(t.decisions, redis.ReasonTimeout, true)
		r.report(redis.ReasonTimeout, errLate)
	} else {
		r.read(t)
	}
	if t.ended != nil {
		t.ended(t.decisions[0].Reason)
	}
}

var errLate = errors.New("no reply in time")

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

// read decides the trip by its reply, or leaves it undecided by the error in place of one.
func (r *Redis) read(t *trip) {
	err := decide(t.script, &t.pending, t.charges, t.decisions)
	if err != nil {
		if t.decisions[0].Unknown {
			r.unknown.Add(1)
		}
		r.report(t.decisions[0].Reason, err)
		return
	}
	for i := range t.decisions {
		if t.decisions[i].Reason == limit.ReasonForeign {
			r.noteForeign(&t.charges[i], false)
		}
	}
}

// report counts a trip that stays undecided.
func (r *Redis) report(reason string, err error) {
	r.undecided.Add(1)
	r.cfg.OnError(reason, err)
}

// decide decides charges by a reply. By an error in place of one they are undecided.
func decide(script *limit.Script, p *redis.Pending, charges []limit.Charge, decisions []limit.Decision) error {
	if p.Err != nil {
		undecide(decisions, redis.Reason(p.Err), redis.MayHaveRun(p.Err))
		return p.Err
	}
	err := script.Decide(p.Reply, charges, decisions)
	if err != nil {
		undecide(decisions, redis.ReasonReply, true)
		return fmt.Errorf("read the reply of the script %s: %w", script.Name, err)
	}
	return nil
}

func undecide(decisions []limit.Decision, reason string, unknown bool) {
	for i := range decisions {
		decisions[i] = limit.Decision{Reason: reason, Unknown: unknown}
	}
}

// recycle lets go of what belongs to the caller, and keeps the trip's memory for the next one.
func (r *Redis) recycle(t *trip) {
	if t.left {
		return
	}
	if len(t.places) == 0 {
		t.charges, t.decisions = nil, nil
	}
	clear(t.charges)
	clear(t.pending.Keys)
	clear(t.pending.Arguments)
	t.home, t.charges, t.places, t.round, t.undoes = home{}, t.charges[:0], t.places[:0], 0, false
	t.before, t.after, t.sent, t.ended = nil, nil, false, nil
	r.trips.Put(t)
}
