//go:build !race

package store

// How many histories are checked, per algorithm: of requests on one counter, on several, behind the cache of denials, with
// lost replies, and of the racy limiter.
const (
	singleHistories  = 60
	requestHistories = 20
	cachedHistories  = 20
	lossyHistories   = 6
	racyHistories    = 10
)
