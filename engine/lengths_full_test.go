//go:build full && !race

package engine_test

// How many random runs are held against the bound, per algorithm, and how many explained.
const (
	boundRounds   = 60
	explainRounds = 12
)
