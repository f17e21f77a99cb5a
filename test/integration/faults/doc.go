// Package faults is the fault matrix: the sidecar's own program on a real Redis, under load, while something breaks. Each row
// is one fault with its bounds. A run prints the table.
//
// make test runs the rows that have a short length; make test-faults runs all of them in full (FAULTS=full).
package faults
