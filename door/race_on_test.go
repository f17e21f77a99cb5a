//go:build race

package door

// allowed is how many allocations a call may make. Under the race detector pools forget some of what they are given.
const allowed = 5
