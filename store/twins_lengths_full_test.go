//go:build full && !race

package store_test

// walkSteps is how many requests the twins decide per algorithm.
const walkSteps = 200_000
