package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
)

// leastBudget is the shortest time worth asking in. A call that is sure to miss its deadline would only cost the pool a
// connection.
const leastBudget = 50 * time.Microsecond

// trip is one request on its way to Redis and back, kept from call to call for its memory.
type trip struct {
	charges   []limit.Charge   // of the request, the caller's
	decisions []limit.Decision // of the request, the caller's

	asked   []limit.Charge   // the part that is sent, when it is not all
	places  []int            // asked[i] is charges[places[i]]
	answers []limit.Decision // of the part
	known   []bool           // known[i]: decisions[i] was given without asking
	copied  limit.State      // what a charge is worked out on
	copies  [1]*limit.State  // that one
	peeked  [1]limit.Charge  // a charge as a question about what is left

	call   limit.Call
	args   []any         // of the command
	once   once          // the command
	states []limit.State // of refused charges, as the script returned them
	server int64         // µs since the epoch on the server when it decided
	sent   time.Time     // just before the script was sent
	marks  []uint64      // what the denials' shards had forgotten by then
}

// reset lets go of what belongs to the caller.
func (t *trip) reset() *trip {
	clear(t.asked)
	clear(t.call.Keys)
	clear(t.args)
	clear(t.states)
	t.charges, t.decisions, t.peeked[0], t.once = nil, nil, limit.Charge{}, once{}
	return t
}

// once is a command that go-redis never sends twice, also where it follows redirects: after a lost reply nobody knows
// whether the script ran. It knows whether it was written, because go-redis asks for its words then.
type once struct {
	*redis.Cmd
	read int // how often go-redis has asked for the words
}

// NoRetry says so to go-redis.
func (*once) NoRetry() bool { return true }

// Args are the words of the command.
func (o *once) Args() []any {
	o.read++
	return o.Cmd.Args()
}

// ask decides charges where they live, with refused when the request is refused already.
func (r *Redis) ask(ctx context.Context, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	if r.closed.Load() {
		r.lost(decisions, ReasonShutdown, redis.ErrClosed, false)
		return
	}
	n, together := r.together(charges)
	if !together {
		r.askParts(ctx, charges, refused, decisions)
		return
	}
	r.askNode(ctx, n, t, charges, refused, decisions)
}

// place is where the counter of a charge lives.
func (r *Redis) place(c *limit.Charge) (*node, int) {
	if r.second != nil && c.Limit.Window <= time.Second {
		return r.second.place(c.Key)
	}
	return r.main.place(c.Key)
}

// together is the node of the first charge, and whether one call can have all of them.
func (r *Redis) together(charges []limit.Charge) (*node, bool) {
	first, slot := r.place(&charges[0])
	for i := 1; i < len(charges); i++ {
		n, at := r.place(&charges[i])
		if n != first || at != slot {
			return nil, false
		}
	}
	return first, true
}

// askNode sends charges to a node in one call of the script and fills decisions. Without a reply every decision is undecided.
func (r *Redis) askNode(ctx context.Context, n *node, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	if r.denials != nil {
		r.denials.note(t, charges)
	}
	var ended func(reason string)
	if r.onTrip != nil {
		ended = r.onTrip(ctx, n.name, len(charges))
	}
	began := time.Now()
	ok := r.trip(ctx, n, t, charges, refused, decisions)
	r.onCall(n.name, decisions[0].Reason, time.Since(began))
	if ended != nil {
		ended(decisions[0].Reason)
	}
	if r.denials != nil {
		r.denials.learn(t, charges, decisions, ok, refused)
	}
}

// trip makes one call behind the node's breaker, and reports whether there was a reply.
func (r *Redis) trip(ctx context.Context, n *node, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) bool {
	budget := r.allowance(ctx)
	if budget < leastBudget {
		return r.lost(decisions, ReasonDeadline, context.DeadlineExceeded, false)
	}
	var why string
	var fault error
	err := n.guard.Do(func() breaker.Result {
		t.call.Set(charges, refused, 0)
		began := time.Now()
		why, fault = r.attempt(ctx, n, t, budget, decisions)
		return r.evidence(ctx, n, budget, time.Since(began), why, fault)
	})
	if err != nil {
		n.lost(ReasonBreaker)
		return r.lost(decisions, ReasonBreaker, err, false)
	}
	if why != "" {
		return r.lost(decisions, why, fault, ranMaybe(why, fault, t.once.read > n.routing))
	}
	return true
}

// attempt makes the call that is set and reads the reply. It returns why there was no decision, or nothing.
func (r *Redis) attempt(ctx context.Context, n *node, t *trip, budget time.Duration, decisions []limit.Decision) (string, error) {
	if r.inFlight.Add(1) > r.flight {
		r.inFlight.Add(-1)
		return ReasonOverload, errOverload
	}
	defer r.inFlight.Add(-1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget)
	defer cancel()
	reply, err := r.run(ctx, n, t)
	if err != nil {
		label := reason(err)
		n.lost(label)
		return label, err
	}
	t.states = grow(t.states, len(decisions))
	t.server, err = t.call.Read(reply, decisions, t.states)
	if err != nil {
		return ReasonReply, err
	}
	return "", nil
}

// allowance is how long a call may take: 80 % of what is left to the caller, who still has to write its answer.
func (r *Redis) allowance(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return r.budget
	}
	return min(r.budget, time.Until(deadline)*8/10)
}

// run calls the script by its hash. It calls it again only after replies that prove that nothing has run: by its text when the server
// does not know it; when the keys of a call are on their way from one server of a cluster to another, until they are together; and
// once when the server turns out to be a replica, because there may be a new master by now.
func (r *Redis) run(ctx context.Context, n *node, t *trip) (any, error) {
	_, name := t.call.Script()
	t.args = append(t.args[:0], "evalsha", name, len(t.call.Keys))
	for _, key := range t.call.Keys {
		t.args = append(t.args, key)
	}
	t.args = append(t.args, t.call.Args...)
	retried := false
	for {
		reply, err := r.send(ctx, n, t)
		if err == nil || !r.again(ctx, n, t, err, &retried) {
			return reply, err
		}
	}
}

// again prepares another try if the error proves that nothing has run, and there is a point in it.
func (r *Redis) again(ctx context.Context, n *node, t *trip, err error, retried *bool) bool {
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT") && t.args[0] == "evalsha":
		r.loaded.Add(1)
		text, _ := t.call.Script()
		t.args[0], t.args[1] = "eval", text
		return true
	case redis.HasErrorPrefix(err, "TRYAGAIN"):
		return pause(ctx, splitPause)
	case redis.HasErrorPrefix(err, "READONLY") && !*retried && n.resolve != nil:
		*retried = true
		n.resolve(ctx)
		return true
	}
	return false
}

// splitPause is between two tries of keys that are being moved.
const splitPause = 500 * time.Microsecond

func (r *Redis) send(ctx context.Context, n *node, t *trip) (any, error) {
	r.trips.Add(1)
	t.sent = r.now()
	if n.seen != nil {
		n.seen(t.sent, t.call.Keys[0])
	}
	t.once = once{Cmd: redis.NewCmd(ctx, t.args...)}
	if err := n.sender.Process(ctx, &t.once); err != nil {
		return nil, err
	}
	return t.once.Val(), nil
}

// lost answers that nobody decided. With unknown the charges may have been made all the same.
func (r *Redis) lost(decisions []limit.Decision, reason string, err error, unknown bool) bool {
	undecide(decisions, reason, unknown)
	r.undecided.Add(1)
	if unknown {
		r.unknown.Add(1)
	}
	r.onError(reason, err)
	return false
}

// grow returns a slice of n zero values that uses the memory of s if it can.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
