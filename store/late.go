package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// await hands over a call whose reply may still come. Its charges are Unknown until then.
func (r *Redis) await(t *trip, charges []limit.Charge, decisions []limit.Decision) {
	out, pending := t.out, make([]limit.Pending, len(decisions))
	t.out = new(outbound)
	for i := range decisions {
		decisions[i].Unknown, decisions[i].Pending = true, &pending[i]
	}
	charged := slices.Clone(charges)
	out.wire.Adopt(func(_ *fleet.Call, err error) {
		r.background.run(func() { r.main.Guard(func() { r.settle(out, charged, pending, err) }) })
	})
}

// settle resolves the decisions of a call that was too late for its caller: by the reply, or by that there never will be one.
func (r *Redis) settle(out *outbound, charges []limit.Charge, pending []limit.Pending, err error) {
	decisions := make([]limit.Decision, len(pending))
	switch {
	case err == nil && out.wire.Reply.Kind == fleet.Nothing:
		undecide(decisions, fleet.ReasonTimeout, false) // tight.lua left it to the general code: nothing has run
	case err == nil:
		_, err = out.call.ReadBytes(out.wire.Reply.Data, decisions, nil)
		if err == nil {
			r.late.Add(1)
		} else {
			undecide(decisions, fleet.ReasonReply, true)
		}
	default:
		undecide(decisions, reason(err), ranMaybe(err))
	}
	if decisions[0].Unknown {
		r.unknown.Add(1)
	}
	for i := range pending {
		if r.denials != nil {
			r.denials.forget(charges[i].Key)
		}
		pending[i].Resolve(decisions[i])
	}
}

// foreignValue is in what the script says about a value of the right type that no limit wrote.
const foreignValue = "holds a value that no limit wrote"

// reason labels the error of a call of the script.
func reason(err error) string {
	var reply fleet.ReplyError
	if errors.As(err, &reply) && strings.Contains(string(reply), foreignValue) {
		return fleet.ReasonWrong
	}
	return fleet.Reason(err)
}

// noPermInside is how a reply begins when the user may run the script, but not a command in it.
const noPermInside = "ERR The user executing the script can't"

// ranMaybe reports whether a call of the script that failed may have charged all the same. What was never sent has not, and an error
// that the server replied with shows that nothing ran, unless it is one from inside the script. A server that does not know the script
// has not run it.
func ranMaybe(err error) bool {
	switch reason(err) {
	case fleet.ReasonScript:
		return !fleet.IsReply(err, "NOSCRIPT")
	case fleet.ReasonNoPerm:
		return strings.HasPrefix(err.Error(), noPermInside)
	}
	return fleet.MayHaveRun(err)
}
