//go:build race

package store_test

// walkSteps is how many requests the twins decide per algorithm. The race detector makes each one dear, and the walk has
// one goroutine per algorithm: the full number runs without it.
const walkSteps = 20_000
