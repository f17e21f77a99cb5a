package engine

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Outcome is what became of a request as a whole. Metrics, logs, traces and the answers of ext_authz are made from it.
type Outcome uint8

// The outcomes. Outcomes is their number.
const (
	Allowed   Outcome = iota
	Refused           // by a limit, or because the request asks for too much
	Blocked           // by a block
	Exempt            // by an allow
	Shadowed          // would have been refused, but the sidecar is in shadow mode
	NoLimit           // nothing applied
	Unknown           // the domain has no rules
	Malformed         // contradicts itself, and was refused for that
	Outcomes
)

var outcomeNames = [Outcomes]string{
	"allowed", "refused", "blocked", "exempt", "shadowed", "no_limit", "unknown_domain", "malformed",
}

// String returns the name of the outcome in metrics, traces, logs and answers.
func (o Outcome) String() string {
	if o >= Outcomes {
		return "unknown"
	}
	return outcomeNames[o]
}

// Refuses reports whether the request was refused, or would have been without shadow mode.
func (o Outcome) Refuses() bool {
	return o == Refused || o == Blocked || o == Shadowed || o == Malformed
}

// Conclusion is what a verdict comes to, worked out once for answers, metrics, logs, traces and the journal.
type Conclusion struct {
	Outcome    Outcome
	HTTPStatus int // of the answer to a client over HTTP: 200 where the request passes
	// Effect is the limit, block or allow that decided the request: the one that refuses, else the one that is
	// reported, else the first that applies, or nil.
	Effect *descriptors.Effect
	ID     ID // by which the decision can be looked up; an observer sets it
}

// Conclude fills in the conclusion.
func (v *Verdict) Conclude() {
	v.Outcome = v.outcome()
	v.HTTPStatus = http.StatusOK
	if v.Outcome.Refuses() && v.Outcome != Shadowed {
		v.HTTPStatus = v.refusalStatus()
	}
	v.Effect = cmp.Or(v.Match.Block, v.Refusing, v.Match.Exempt, v.Reported.Effect)
	if v.Effect == nil && len(v.Match.Terms) > 0 {
		v.Effect = v.Match.Terms[0].Effect
	}
	if v.Effect == nil && len(v.Match.Unlimited) > 0 {
		v.Effect = v.Match.Unlimited[0].Effect
	}
}

func (v *Verdict) outcome() Outcome {
	switch {
	case v.Shadowed:
		return Shadowed
	case v.Malformed != nil:
		return Malformed
	case v.Refused && v.Match.Block != nil:
		return Blocked
	case v.Refused:
		return Refused
	case v.Match.Exempt != nil:
		return Exempt
	case !v.Match.Known:
		return Unknown
	case len(v.Match.Terms) == 0 && len(v.Match.Unlimited) == 0:
		return NoLimit
	}
	return Allowed
}

// refusalStatus is the status of the response that a rule or an identity asks for, else the usual one of the outcome.
func (v *Verdict) refusalStatus() int {
	status, own := http.StatusTooManyRequests, 0
	switch v.Outcome {
	case Malformed:
		status, own = http.StatusBadRequest, v.Malformed.Status
	case Blocked:
		status = http.StatusForbidden
	}
	if v.Response != nil {
		own = v.Response.Status
	}
	if own < 200 || own > 599 { // a response cannot have it
		return status
	}
	return own
}

// ID is the number of a decision that can be looked up. The decision has none where it is zero.
type ID uint64

// idDigits are those of an ID.
const idDigits = "0123456789abcdef"

// Append appends the 16 digits of the ID.
func (i ID) Append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, idDigits[i>>shift&15])
	}
	return b
}

// String returns the 16 digits of the ID, and nothing for none.
func (i ID) String() string {
	if i == 0 {
		return ""
	}
	return string(i.Append(nil))
}

// ParseID reads what Append has written.
func ParseID(text string) (ID, error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, errors.New("an id must have 16 digits")
	}
	return ID(n), nil
}
