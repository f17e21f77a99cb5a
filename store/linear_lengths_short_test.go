//go:build !full || race

package store

import "time"

// How many histories are checked, per algorithm.
const (
	singleHistories  = 10
	requestHistories = 5
	cachedHistories  = 5
	lossyHistories   = 3
	racyHistories    = 3
)

// wireCalls is how many tagged calls are sliced; beside them there are nearly as many with other faults.
const wireCalls = 2_000

// slowBudget is the budget on a network that takes 4 ± 2 ms: room for the race detector, too.
const slowBudget = 100 * time.Millisecond
