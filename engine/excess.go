package engine

import (
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

const (
	// excessCharges is the reason for which a request is refused that asks for too many charges, all or none.
	excessCharges = "charges"
	// excessPath is the reason for one with a path that is long, and that servers read in different ways.
	excessPath = "path"
	// excessRetry is how long its client is told to wait.
	excessRetry = closedRetry
)

// excessResponse is what its client reads.
var excessResponse = &descriptors.Response{Message: "The request asks for more than one request may."}

// exceeds refuses a request that asks for more than one may, if there is a reason, and reports whether there is. Nothing is charged,
// and its first descriptor is over the limit.
func (v *Verdict) exceeds(reason string) bool {
	if reason == "" {
		return false
	}
	known, domain := v.Match.Known, v.Match.Domain
	v.Match.Reset()
	v.Match.Known, v.Match.Domain = known, domain
	v.Refused, v.Excess, v.RetryAfter, v.Response = true, reason, excessRetry, excessResponse
	if len(v.Statuses) > 0 {
		v.Statuses[0].Over = true
	}
	return true
}

// tooMany reports whether more charges than one call of the store can have are to be made all or none.
func tooMany(charges []limit.Charge) bool {
	if len(charges) <= limit.MaxTogether {
		return false
	}
	together := 0
	for i := range charges {
		if !charges[i].Each {
			together++
		}
	}
	return together > limit.MaxTogether
}
