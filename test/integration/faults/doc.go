// Package faults is the fault matrix: the sidecar's own program on a real Redis, under load, while something breaks.
// Each row is one fault with its bounds. A run prints the table.
//
// make test runs eight rows, without bounds on time; make test-all runs all of them at full length.
package faults
