//go:build !race

package door

// allowed is how many allocations a call may make.
const allowed = 0
