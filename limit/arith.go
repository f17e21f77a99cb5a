package limit

import "math/bits"

// maxExact is the largest integer up to which every integer is exact as a double, which is all a script has. Results
// that would be larger are taken for this one: no valid limit comes near it.
const maxExact = 1 << 53

// divide returns x / y and what is left over, for x >= 0 and y > 0.
func divide(x, y int64) (quotient, rest int64) {
	return x / y, x % y
}

// ceiling returns x / y rounded up, for x >= 0 and y > 0.
func ceiling(x, y int64) int64 {
	return (x + y - 1) / y
}

// share returns a * b / c and what is left over, exactly, for a >= 0 and b, c > 0. A quotient of maxExact or more comes
// back as maxExact with nothing left over.
func share(a, b, c int64) (quotient, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return maxExact, 0
	}
	q, r := bits.Div64(hi, lo, uint64(c))
	if q >= maxExact {
		return maxExact, 0
	}
	return int64(q), int64(r)
}
