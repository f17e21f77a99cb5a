//go:build race

package store

// poolAllocs is what a sync.Pool may cost per use: the race detector makes it forget at random.
const poolAllocs = 1
