//go:build !full || race

package descriptors

// divisor is what the counts of the long random tests are divided by.
const divisor = 20
