//go:build race

package store

// How many histories are checked, per algorithm. The race detector makes each some ten times as slow.
const (
	singleHistories  = 10
	requestHistories = 5
	cachedHistories  = 5
	lossyHistories   = 3
	racyHistories    = 3
)
