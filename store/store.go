// Package store is where counts are kept. Redis is the store that sidecars share; its denials and leases, and the
// store in memory, are packages below it. A store answers per charge: decided, or undecided with a reason. Being
// limited is a decision and never an error.
//
// All charges of one request are decided all or nothing, as package limit specifies. No charge is sent again after an
// outcome that is not known, so a decision executes at most once.
package store

import (
	"context"

	"github.com/spillway-mesh/spillway/limit"
)

// Counter decides requests. A request belongs to its caller again once a method has returned. It is safe for
// concurrent use.
type Counter interface {
	// Try decides a request without waiting, or changes nothing and reports false.
	Try(r *limit.Request) bool

	// Ask decides requests, each of which waits until its Due at most. A charge that could not be decided is
	// Undecided with its Reason. Refusals by rules with a penalty are recorded.
	Ask(ctx context.Context, requests ...*limit.Request)

	// Peek answers what is left, for charges with Op Peek. What is known here does not answer in place of the store.
	Peek(ctx context.Context, r *limit.Request)

	// Reset makes the counters of these keys full, and ends the cool-downs of these keys.
	Reset(ctx context.Context, keys []string) error
}
