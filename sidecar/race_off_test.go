//go:build !race

package sidecar

// forgotten is how many more allocations a call may make because pools forget what they are given.
const forgotten = 0
