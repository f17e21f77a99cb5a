package exact

import (
	"fmt"
	"math"
	"slices"
)

// span is one admission as its caller saw it: at an instant of the clock of Redis from from to to, both included, in
// microseconds.
type span struct{ from, to, cost int64 }

// breach is the interval that comes closest to a bound, or exceeds it by most.
type breach struct {
	what     string // the bound
	from, to int64  // microseconds, both included
	admitted int64  // surely within
	allowed  int64
}

// over is what was admitted beyond the bound; negative: what was left.
func (b breach) over() int64 { return b.admitted - b.allowed }

func (b breach) String() string {
	return fmt.Sprintf("%s: %d admitted within %d µs from %d on, at most %d", b.what, b.admitted, b.to-b.from, b.from,
		b.allowed)
}

// worse is the one of two that exceeds its bound by more.
func worse(a, b breach) breach {
	if b.over() > a.over() {
		return b
	}
	return a
}

// none is better than every breach.
func none(what string) breach { return breach{what: what, allowed: math.MaxInt64 / 2} }

// bound is the ideal limiter that a history is compared with.
type bound struct {
	algorithm string
	count     int64
	burst     int64 // token bucket only
	window    int64 // microseconds
}

func (b bound) String() string {
	text := fmt.Sprintf("%s of %d in %d ms", b.algorithm, b.count, b.window/1000)
	if b.algorithm == tokenBucket {
		text += fmt.Sprintf(", burst %d", b.burst)
	}
	return text
}

// capacity is what the ideal admits at once.
func (b bound) capacity() int64 {
	if b.algorithm == tokenBucket {
		return b.burst
	}
	return b.count
}

// plus is the bound with so much more at once: what an event outside of the limiter, such as a failover, may give once.
func (b bound) plus(tokens int64) bound {
	if b.algorithm == tokenBucket {
		b.burst += tokens
	} else {
		b.count += tokens
	}
	return b
}

const (
	tokenBucket   = "token_bucket"
	fixedWindow   = "fixed_window"
	slidingWindow = "sliding_window"
	slidingLog    = "sliding_log"
)

// check is the worst interval of a history.
func (b bound) check(spans []span) breach {
	switch b.algorithm {
	case tokenBucket:
		return bucketCheck(spans, b)
	case fixedWindow:
		return windowCheck(spans, b)
	case slidingWindow:
		return worse(windowCheck(spans, b), weightCheck(spans, b))
	case slidingLog:
		return logCheck(spans, b)
	}
	panic("no such algorithm: " + b.algorithm)
}

// bucketCheck compares with burst + count × time / window, in units of 1/window tokens.
func bucketCheck(spans []span, b bound) breach {
	worst := none("token bucket")
	sweep(spans, b.count, b.window, math.MaxInt64, func(from, to, admitted int64) {
		// Costs are whole, so the bound is rounded down.
		found := breach{what: worst.what, from: from, to: to, admitted: admitted, allowed: b.burst +
			b.count*(to-from)/b.window}
		worst = worse(worst, found)
	})
	return worst
}

// windowCheck compares runs of aligned windows with one limit for each.
func windowCheck(spans []span, b bound) breach {
	windows := make([]span, len(spans))
	for i, s := range spans {
		windows[i] = span{from: s.from / b.window, to: s.to / b.window, cost: s.cost}
	}
	worst := none("aligned windows")
	sweep(windows, b.count, 1, math.MaxInt64, func(first, last, admitted int64) {
		found := breach{what: worst.what, from: first * b.window, to: (last+1)*b.window - 1, admitted: admitted,
			allowed: b.count * (last - first + 1)}
		worst = worse(worst, found)
	})
	return worst
}

// logCheck compares intervals shorter than k windows with k limits.
func logCheck(spans []span, b bound) breach {
	worst := none("sliding log")
	if len(spans) == 0 {
		return worst
	}
	first, last := spans[0].from, spans[0].to
	for _, s := range spans {
		first, last = min(first, s.from), max(last, s.to)
	}
	for k := int64(1); k <= (last-first)/b.window+1; k++ {
		sweep(spans, 0, 1, k*b.window-1, func(from, to, admitted int64) {
			worst = worse(worst, breach{what: worst.what, from: from, to: to, admitted: admitted, allowed: k * b.count})
		})
	}
	return worst
}

// weightCheck compares what is taken within a window with the limit less the weight of the window before.
func weightCheck(spans []span, b bound) breach {
	worst := none("weighted windows")
	within := map[int64][]span{} // by window, those that surely fell into it
	sure := map[int64]int64{}    // their cost
	for _, s := range spans {
		if k := s.from / b.window; k == s.to/b.window {
			within[k] = append(within[k], s)
			sure[k] += s.cost
		}
	}
	for k, all := range within {
		slices.SortFunc(all, func(x, y span) int { return int(x.to - y.to) })
		var used int64
		for _, s := range all {
			used += s.cost
			rest := (k+1)*b.window - s.to
			weight := (sure[k-1]*rest + b.window - 1) / b.window
			worst = worse(worst, breach{what: worst.what, from: k * b.window, to: s.to, admitted: used,
				allowed: b.count - weight})
		}
	}
	return worst
}

// sweep calls visit for each end of a span with the start that maximises per × D[start, end] − rate × (end − start),
// among the starts that are at most reach earlier.
func sweep(spans []span, rate, per, reach int64, visit func(from, to, admitted int64)) {
	if len(spans) == 0 {
		return
	}
	ends := slices.Clone(spans)
	slices.SortFunc(ends, func(x, y span) int { return int(x.to - y.to) })
	starts := make([]int64, 0, len(spans))
	for _, s := range spans {
		starts = append(starts, s.from)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	heights := make([]int64, len(starts))
	for i, from := range starts {
		heights[i] = rate * (from - starts[0])
	}
	tree := newMaxima(heights)
	for i := 0; i < len(ends); {
		to := ends[i].to
		for ; i < len(ends) && ends[i].to == to; i++ {
			last, _ := slices.BinarySearch(starts, ends[i].from)
			tree.raise(last, ends[i].cost*per)
		}
		low := 0
		if reach < math.MaxInt64 {
			low, _ = slices.BinarySearch(starts, to-reach)
		}
		high, _ := slices.BinarySearch(starts, to+1)
		if low >= high {
			continue // no span that began within reach has ended
		}
		value, at := tree.most(low, high)
		visit(starts[at], to, (value-heights[at])/per)
	}
}
