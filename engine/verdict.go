package engine

import (
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Verdict is what a request gets. A door makes one, hands it to Decide and may use it again afterwards.
type Verdict struct {
	Refused    bool
	Statuses   []Status              // one per descriptor, in order
	RetryAfter time.Duration         // with Refused: the longest of the refusing limits
	Response   *descriptors.Response // of the refusing rule with the longest wait, or nil
	Refusing   *descriptors.Effect   // that rule, or nil
	Degraded   string                // why the store did not decide, or empty
	Shadowed   bool                  // refused, but the whole sidecar is in shadow mode
	Match      descriptors.Match     // what applied
	Decisions  []limit.Decision      // Decisions[i] is about Match.Charges[i]
}

// Status is what a verdict says about one descriptor.
type Status struct {
	Over       bool                // refused
	Effect     *descriptors.Effect // the limit that is reported, or nil: none applies, or only a shadow one
	Unlimited  bool                // an unlimited limit applies
	Remaining  int64               // with Effect
	ResetAfter time.Duration       // with Effect
}
