//go:build !unix

package journal

// roomOf returns the memory of n values.
func roomOf[T any, O any](_ *O, n int) []T { return make([]T, n) }
