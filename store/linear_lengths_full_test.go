//go:build full && !race

package store

import "time"

// How many histories are checked, per algorithm: of requests on one counter, on several, behind the cache of denials, with
// lost replies, and of the racy limiter.
const (
	singleHistories  = 60
	requestHistories = 20
	cachedHistories  = 20
	lossyHistories   = 6
	racyHistories    = 10
)

// wireCalls is how many tagged calls are sliced; beside them there are nearly as many with other faults.
const wireCalls = 12_000

// slowBudget is the budget on a network that takes 4 ± 2 ms: room for a machine that is busy with others.
const slowBudget = 20 * time.Millisecond
