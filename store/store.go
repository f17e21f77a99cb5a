// Package store is where counts are kept: Memory and Redis, with a denial cache and a breaker in front of Redis. A store
// answers per charge: decided, or undecided with a reason. Being limited is a decision and never an error.
//
// All charges of one request are decided at one instant and all or nothing, as package limit says: Memory holds the locks
// of every counter involved, Redis runs one script. Neither store retries after an outcome it does not know, so that a
// decision executes at most once.
package store

import "github.com/spillway-mesh/spillway/limit"

// undecide answers every charge with Undecided and the reason.
func undecide(decisions []limit.Decision, reason string, unknown bool) {
	for i := range decisions {
		decisions[i] = limit.Decision{Reason: reason, Unknown: unknown}
	}
}

// peeks appends to dst each charge as a question about what is left: it takes nothing, whatever the charge was. The mode of a charge with a
// penalty stays, because a cool-down refuses nothing in shadow.
func peeks(dst, charges []limit.Charge) []limit.Charge {
	for _, c := range charges {
		c.Op = limit.Peek
		c.Each = c.Penalty != nil
		if c.Penalty == nil {
			c.Mode = limit.Shadow
		}
		c.Cost = max(c.Cost, 1)
		dst = append(dst, c)
	}
	return dst
}
