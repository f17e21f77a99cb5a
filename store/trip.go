package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// leastBudget is the shortest time worth asking in. A call that is sure to miss its deadline would only cost the server work.
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

	near    []*holding     // of each charge's counter
	guards  []guardPart    // charges that the server decides though tokens of their counters are held; empty: there are none
	held    []heldPart     // what each charge took of what is held
	again   bool           // two charges took something of one holding
	missing []limit.Charge // the part that is not held

	out    *outbound
	states []limit.State // of refused charges, as the script returned them
	server int64         // µs since the epoch on the server when it decided
	sent   time.Time     // just before the script was sent
	left   time.Duration // of the patience
	marks  []uint64      // what the denials' shards had forgotten by then
}

// reset lets go of what belongs to the caller.
func (t *trip) reset() *trip {
	clear(t.asked)
	clear(t.missing)
	clear(t.near)
	clear(t.held)
	clear(t.out.call.Keys)
	clear(t.states)
	t.charges, t.decisions, t.peeked[0], t.out.wire.Key = nil, nil, limit.Charge{}, ""
	return t
}

// outbound is the call of the script that a trip makes. One whose reply is still to come is handed over, and the trip gets another.
type outbound struct {
	call limit.Call
	wire fleet.Call
}

// write writes the command: the script by its hash, or by its text.
func (o *outbound) write(verb, script string) {
	o.wire.Key = o.call.Keys[0]
	words := 3 + len(o.call.Keys) + 1
	extras := o.call.Extras()
	if len(extras) > 0 {
		words++
	}
	b := fleet.AppendCommand(o.wire.Wire[:0], words)
	b = fleet.AppendWord(b, verb)
	b = fleet.AppendWord(b, script)
	b = fleet.AppendWord(b, strconv.Itoa(len(o.call.Keys)))
	keysAt := len(b)
	for _, key := range o.call.Keys {
		b = fleet.AppendWord(b, key)
	}
	argumentAt := len(b)
	b = fleet.AppendWord(b, o.call.Packed())
	if len(extras) > 0 {
		b = fleet.AppendWord(b, extras)
	}
	o.wire.Wire = b
	if o.call.Simple() {
		o.wire.Join(batch, len(o.call.Keys), keysAt, argumentAt)
	} else {
		o.wire.Join(nil, 0, 0, 0)
	}
}

// batch makes several simple calls in one.
var batch = &fleet.Batch{Text: limit.BatchScript, Name: limit.BatchSHA, Head: limit.BatchHead, Cut: limit.Cut}

var errClosed = errors.New("the store is closed")

// ask decides charges where they live, with refused when the request is refused already.
func (r *Redis) ask(ctx context.Context, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	if r.closed.Load() {
		r.lost(decisions, fleet.ReasonShutdown, errClosed, false)
		return
	}
	if len(charges) > limit.MaxTogether {
		r.askMany(ctx, charges, refused, decisions)
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
func (r *Redis) place(c *limit.Charge) (*fleet.Node, int) {
	if r.second != nil && c.Limit.Window <= time.Second {
		return r.second.Place(c.Key)
	}
	return r.main.Place(c.Key)
}

// together is the node of the first charge, and whether one call can have all of them.
func (r *Redis) together(charges []limit.Charge) (*fleet.Node, bool) {
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
func (r *Redis) askNode(ctx context.Context, n *fleet.Node, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) {
	if r.denials != nil {
		r.denials.note(t, charges)
	}
	var ended func(reason string)
	if r.onTrip != nil {
		ended = r.onTrip(ctx, n.Name(), len(charges))
	}
	began := time.Now()
	ok := r.trip(ctx, n, t, charges, refused, decisions)
	r.onCall(n.Name(), decisions[0].Reason, time.Since(began))
	if ended != nil {
		ended(decisions[0].Reason)
	}
	if r.denials != nil {
		r.denials.learn(t, charges, decisions, ok, refused)
	}
	if r.holdings != nil && ok {
		r.holdings.count(charges, decisions, t.states)
	}
}

// trip makes one call, and reports whether there was a reply in time.
func (r *Redis) trip(ctx context.Context, n *fleet.Node, t *trip, charges []limit.Charge, refused bool, decisions []limit.Decision) bool {
	allow := r.allowance(ctx)
	if allow < leastBudget {
		return r.lost(decisions, fleet.ReasonDeadline, context.DeadlineExceeded, false)
	}
	t.out.call.Set(charges, refused, 0)
	t.out.wire.Caller = ""
	if r.caller != nil && n.Overloaded() {
		t.out.wire.Caller = r.caller(ctx)
	}
	err := r.run(ctx, n, t, allow)
	if t.out.wire.Pending() {
		r.lost(decisions, fleet.Reason(err), err, false)
		r.await(t, charges, decisions)
		return false
	}
	if err != nil {
		why := reason(err)
		if why == fleet.ReasonWrong {
			r.noteForeign(charges)
		}
		return r.lost(decisions, why, err, ranMaybe(err))
	}
	t.states = grow(t.states, len(decisions))
	t.server, err = t.out.call.ReadBytes(t.out.wire.Reply.Data, decisions, t.states)
	if err != nil {
		return r.lost(decisions, fleet.ReasonReply, err, true)
	}
	return true
}

// allowance is how long a call may take: 80 % of what is left to the caller, who still has to write its answer.
func (r *Redis) allowance(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return r.patience
	}
	return min(r.patience, time.Until(deadline)*8/10)
}

// run makes the call, and makes it once more by the general code where tight.lua leaves it to that, which proves that nothing has run.
func (r *Redis) run(ctx context.Context, n *fleet.Node, t *trip, allow time.Duration) error {
	t.left = allow
	err := r.runScript(ctx, n, t)
	if err != nil || t.out.wire.Reply.Kind != fleet.Nothing {
		return err
	}
	t.out.call.Widen()
	return r.runScript(ctx, n, t)
}

// runScript calls the script by its hash, and by its text when the server does not know it, which proves that nothing has run.
func (r *Redis) runScript(ctx context.Context, n *fleet.Node, t *trip) error {
	text, name := t.out.call.First()
	err := r.send(ctx, n, t, "EVALSHA", name)
	if err == nil || !fleet.IsReply(err, "NOSCRIPT") {
		return err
	}
	r.loaded.Add(1)
	return r.send(ctx, n, t, "EVAL", text)
}

// send makes the call, and counts it if it was made. What it waited is no longer left.
func (r *Redis) send(ctx context.Context, n *fleet.Node, t *trip, verb, script string) error {
	t.out.write(verb, script)
	t.sent = r.now()
	err := n.Do(ctx, &t.out.wire, t.left)
	if !t.out.wire.Pending() {
		t.left -= t.out.wire.Spent()
	}
	if t.out.wire.Sent() {
		r.trips.Add(1)
	}
	return err
}

// lost answers that the store did not decide. With unknown the charges may have been made all the same.
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
