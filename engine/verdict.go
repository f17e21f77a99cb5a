package engine

import (
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Verdict is what a request gets. A door makes one, hands it to Decide and may use it again afterwards.
type Verdict struct {
	Conclusion
	Refused    bool
	Statuses   []Status              // one per descriptor, in order
	RetryAfter time.Duration         // with Refused: the longest of the refusing limits
	Response   *descriptors.Response // of the refusing rule with the longest wait, or nil
	Refusing   *descriptors.Effect   // that rule, or nil
	Malformed  *identity.Refusal     // the request contradicts itself and is refused for that, or nil
	// the request asks for more than one may, and is refused for that; empty: it does not
	Excess   string
	Client   identity.Client   // ext_authz: who asked
	Reported Status            // the strictest of all limits; its Effect is nil where none has numbers to show
	Cost     int64             // what the reported limit charges for the request
	Waited   time.Duration     // how long a throttled answer was held
	Began    time.Time         // with Config.Timed: when the decision began
	Took     time.Duration     // with Config.Timed: how long it took, with Waited
	Degraded string            // why the store did not decide, or empty
	Shadowed bool              // refused, but the whole sidecar is in shadow mode
	Match    descriptors.Match // what applied
	// Decisions[i] is about Match.Charges[i]; Remaining is -1 where nothing was counted; Reason, and Unknown, stay
	// where the store did not decide.
	Decisions []limit.Decision

	progress
	scratch
}

// scratch is memory that verdicts use again.
type scratch struct {
	part       limit.Request     // the question about some of the charges
	left       []int64           // of an explanation: what is left before the request
	attributes descriptors.Asked // with gathered
}

// progress is what a verdict keeps between Begin and Finish.
type progress struct {
	asked    *descriptors.Request // until the verdict is done
	who      descriptors.Who      // whom the request is from
	profiles descriptors.Profiles // what is known about them beside the rules
	request  limit.Request        // the question about all charges
	crowded  bool                 // too many others wait, so no throttle lets it wait
	decided  bool                 // each charge is decided
	done     bool
	gathered bool // attributes are filled in
}

// Status is what a verdict reports about one descriptor.
type Status struct {
	Over       bool                // refused
	Effect     *descriptors.Effect // the limit that is reported, or nil: none applies, or only a shadow one
	Unlimited  bool                // an unlimited limit applies
	Remaining  int64               // with Effect
	ResetAfter time.Duration       // with Effect
	wait       time.Duration       // the retry-after of the reported limit
	tree       bool                // in quota mode: a limit of a tree applies to it
}

// Empty forgets everything but the memory that the next request can use. It goes field by field, because a composite
// literal would copy the match, which is most of a verdict.
func (v *Verdict) Empty() {
	v.Match.Reset()
	if v.Match.Charges == nil { // it was too much to keep
		v.Decisions, v.part = nil, limit.Request{}
	}
	v.Refused, v.Shadowed, v.Degraded, v.Excess = false, false, "", ""
	v.Conclusion = Conclusion{}
	v.RetryAfter, v.Waited, v.Cost, v.Began, v.Took = 0, 0, 0, time.Time{}, 0
	v.Response, v.Refusing, v.Malformed = nil, nil, nil
	v.Client, v.Reported = identity.Client{}, Status{}
	if v.gathered {
		v.attributes = descriptors.Asked{}
	}
	v.progress = progress{}
	v.Statuses, v.Decisions = v.Statuses[:0], v.Decisions[:0]
}

// Attributes are who asks for what, as far as the request names it. They are valid until the observers have returned.
func (v *Verdict) Attributes() *descriptors.Asked {
	if !v.gathered {
		v.Match.Domain.Asked(v.asked, &v.attributes)
		v.gathered = true
	}
	return &v.attributes
}

// reset makes v the verdict on a request that nothing applies to: admitted.
func (v *Verdict) reset(req *descriptors.Request) {
	v.Empty()
	v.Statuses, v.asked = resize(v.Statuses, len(req.Descriptors)), req
}

// resize returns a slice of n zero values, in the memory of s if it is large enough.
func resize[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// Held reports whether all charges were made by tokens on lease.
func (v *Verdict) Held() bool {
	for i := range v.Decisions {
		if !v.Decisions[i].Held {
			return false
		}
	}
	return len(v.Decisions) > 0
}
