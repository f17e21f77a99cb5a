//go:build race

package sidecar

// forgotten is how many more allocations a call may make because pools forget what they are given: under the race
// detector they do so on purpose.
const forgotten = 10
