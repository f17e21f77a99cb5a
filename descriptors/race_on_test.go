//go:build race

package descriptors

// raceDivisor makes the long random tests shorter under the race detector, where they have one goroutine and nothing to find.
const raceDivisor = 20
