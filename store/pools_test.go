//go:build !race

package store

// poolAllocs is what a sync.Pool may cost per use.
const poolAllocs = 0
