package main

import (
	"math"
	"slices"
)

// percentile is the smallest of the sorted values that at least that share of them does not exceed. It is 0 for none.
func percentile(sorted []int64, share float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the value in the middle, or the mean of the two there. A NaN, which means a figure that is not known, is
// left out; the median of nothing is NaN.
func median(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	middle := len(known) / 2
	if len(known)%2 == 1 {
		return known[middle]
	}
	return (known[middle-1] + known[middle]) / 2
}

// ratio is a to b. It is NaN where b is nothing.
func ratio(a, b float64) float64 {
	if b <= 0 {
		return math.NaN()
	}
	return a / b
}
