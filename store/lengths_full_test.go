//go:build full && !race

package store

// identities is how many clients the flood has.
const identities = 1_000_000

// exactRounds is how often each algorithm is fought for.
const exactRounds = 200

// randomRequests is how many requests are checked for charges in part.
const randomRequests = 50_000
