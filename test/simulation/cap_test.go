package simulation

import (
	"cmp"
	"slices"
	"time"
)

// most is how much an ideal limiter admits.
type most struct {
	domain *domain
	count  int64
	burst  int64
	skew   time.Duration // of the clock that windows go by
	margin time.Duration // by which that clock may be late
	given  []*call       // whose tokens come back to a bucket: they were refused before Redis admitted them
}

func newCap(d *domain, count, burst int64) most { return most{domain: d, count: count, burst: burst} }

// in is how much it admits in any interval of that length; all reports that an interval so long has any number.
func (m most) in(length time.Duration) (n int64, all bool) {
	length += m.margin // the clock that it goes by may step on
	if m.domain.algorithm == "sliding_log" {
		return m.count, length >= m.domain.window
	}
	length += time.Microsecond // a limiter knows instants by the microsecond
	return m.burst + int64(float64(m.count)*length.Seconds()/m.domain.window.Seconds()), false
}

// judgeCap compares what was admitted with an ideal limiter. calls are in the order of their begin. A call counts in
// an interval if all of it is within: at which moment between begin and end it was admitted is not known. A refund
// counts from its begin on.
func (w *world) judgeCap(what string, calls []*call, m most) {
	switch m.domain.algorithm {
	case "fixed_window", "sliding_window":
		w.judgeWindows(what, calls, m)
	default:
		w.judgeIntervals(what, calls, m)
	}
}

// judgeWindows: what was admitted in each window of the clock.
func (w *world) judgeWindows(what string, calls []*call, m most) {
	sums := map[time.Duration]int64{}
	first := w.window(m.domain, 0) - 2*m.domain.window - m.skew%m.domain.window
	window := func(at time.Duration) time.Duration { return (at - first) / m.domain.window }
	for _, c := range calls {
		switch from, to := window(c.began-m.margin), window(c.ended); {
		case c.cost < 0:
			for i := from; i <= window(c.ended+promised.lateRefund); i++ {
				sums[i] += c.cost
			}
		case from == to:
			sums[from] += c.cost
		}
	}
	for _, i := range sorted(sums) {
		if sum := sums[i]; sum > m.count {
			from := first + time.Duration(int64(i)*int64(m.domain.window))
			w.violation(calls[0], "%s %d in the window from %v, and the limit is %d", what, sum, from, m.count)
		}
	}
}

// judgeIntervals: what was admitted in every interval that begins with one call and ends with another.
func (w *world) judgeIntervals(what string, calls []*call, m most) {
	ends := slices.Clone(calls)
	at := func(c *call) time.Duration {
		if c.cost < 0 {
			return c.began
		}
		return c.ended
	}
	slices.SortFunc(ends, func(a, b *call) int { return cmp.Compare(at(a), at(b)) })
	first := 0
	for _, from := range calls {
		for first < len(ends) && at(ends[first]) < from.began-promised.lateRefund-time.Second {
			first++
		}
		if from.cost > 0 && w.judgeFrom(what, from, ends[first:], m) {
			return
		}
	}
}

// judgeFrom is judgeIntervals for those that begin with one call. It reports a violation.
func (w *world) judgeFrom(what string, from *call, ends []*call, m most) bool {
	sum := int64(0)
	for _, c := range ends {
		if c.cost < 0 && c.ended+promised.lateRefund >= from.began || c.cost > 0 && c.began >= from.began {
			sum += c.cost
		}
		if c.ended <= from.began || c.cost < 0 {
			continue
		}
		bound, all := m.in(c.ended - from.began)
		if all {
			return false
		}
		if sum > bound && sum > bound+m.back(from.began, c.ended) {
			w.violation(c, "%s %d from %v to %v, and an ideal limiter %d", what, sum, from.began, c.ended, bound)
			return true
		}
	}
	return false
}

// back is what may come back to a bucket meanwhile of what was taken before.
func (m *most) back(from, to time.Duration) (cost int64) {
	for _, c := range m.given {
		if c.ended+promised.givenBack >= from && c.began <= to {
			cost += c.cost
		}
	}
	return cost
}
