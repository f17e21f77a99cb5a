//go:build race

package store

// identities is how many clients the flood has. The race detector makes each some thirty times as slow.
const identities = 60_000

// exactRounds is how often each algorithm is fought for.
const exactRounds = 20

// randomRequests is how many requests are checked for charges in part.
const randomRequests = 4_000

// poolAllocs is what a sync.Pool may cost per use: the race detector makes it forget at random.
const poolAllocs = 1
