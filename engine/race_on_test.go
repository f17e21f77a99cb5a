//go:build race

package engine_test

// How many random runs are held against the bound, per algorithm, and how many explained. The race detector makes each some ten times as slow.
const (
	boundRounds   = 15
	explainRounds = 3
)
