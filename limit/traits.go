package limit

// Traits of the algorithms. Other packages ask for a trait and do not compare algorithms, so that a new algorithm is
// described here alone. The zero value has none of them.

// known reports whether a is one of the algorithms.
func (a Algorithm) known() bool { return a >= TokenBucket && a <= SlidingLog }

// HasBurst reports whether a limit holds up to Burst tokens. The others hold Count and ignore Burst.
func (a Algorithm) HasBurst() bool { return a == TokenBucket }

// Fills reports whether spent tokens come back one by one, at the rate of Count per Window. For the others they come
// back when the charge, or the window that it belongs to, has passed.
func (a Algorithm) Fills() bool { return a == TokenBucket }

// Lends reports whether tokens can be taken before they are due, which throttle and post-paid limits need.
func (a Algorithm) Lends() bool { return a == TokenBucket }

// EndsAtOnce reports whether the end of a window gives back all that was spent in it.
func (a Algorithm) EndsAtOnce() bool { return a == FixedWindow }

// HasCalendar reports whether the windows may be those of a Calendar.
func (a Algorithm) HasCalendar() bool { return a == FixedWindow }

// KeepsLog reports whether each charge is stored, so that the size of a Counter grows with Count.
func (a Algorithm) KeepsLog() bool { return a == SlidingLog }

// ParseAlgorithm returns the algorithm of a name that rule files use, and whether there is one.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for a, known := range algorithmNames {
		if known != "" && known == name {
			return Algorithm(a), true
		}
	}
	return 0, false
}
