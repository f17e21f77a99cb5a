//go:build !race

package descriptors

// raceDivisor is what the long random tests are divided by.
const raceDivisor = 1
