package exact

import "slices"

// outcome is what a caller knows about its request.
type outcome uint8

const (
	admitted outcome = iota
	refused
	undecided // refused because Redis did not answer, or not answered: it may have been charged
)

// algorithms are all that a rule may name.
var algorithms = []string{tokenBucket, fixedWindow, slidingWindow, slidingLog}

const (
	domain = "exact"
	window = 1_000_000 // µs, of all limits
)

// What a limit admits per sidecar and second. Tokens are leased of a counter that a sidecar is asked for 8 times in 100
// ms, while 64 are left for each sidecar.
const (
	lean = 250 // twice of it is what a small machine can do with eight sidecars
	hot  = 400 // the burst is a quarter of it, so tokens are leased until a part of it is spent
)

// boundOf is the limit of a row with so many sidecars.
func boundOf(algorithm string, n, each int) bound {
	count := int64(max(1000, each*n))
	return bound{algorithm: algorithm, count: count, burst: count / 4, window: window}
}

// rate is what a bound admits in a second.
func (b bound) rate() int64 { return b.count * 1_000_000 / b.window }

// twice is the load that a bound admits one half of.
func (b bound) twice() int64 { return 2 * b.rate() }

// event is one request as its caller saw it, on the clock of Redis.
type event struct {
	span
	outcome
	request request
	limit   int64  // count of the limit that the answer names; 0: none
	failure string // why it is undecided
}

// history is what callers saw, in any order.
type history []event

// of is those events that are meant.
func (h history) of(meant func(e *event) bool) history {
	var some history
	for i := range h {
		if meant(&h[i]) {
			some = append(some, h[i])
		}
	}
	return some
}

// spans are the admissions.
func (h history) spans() []span {
	var all []span
	for i := range h {
		if h[i].outcome == admitted {
			all = append(all, h[i].span)
		}
	}
	return all
}

// admitted is the cost of all admissions.
func (h history) admitted() (total int64) {
	for _, s := range h.spans() {
		total += s.cost
	}
	return total
}

// between is the events that were sent after an instant and answered before another.
func (h history) between(from, to int64) history {
	return h.of(func(e *event) bool { return e.from > from && e.to < to })
}

// ideal is what a bound admits of the requests, each at the instant it was sent.
func (h history) ideal(b bound) (total int64) {
	requests := slices.Clone(h)
	slices.SortFunc(requests, func(x, y event) int { return int(x.from - y.from) })
	take := newIdeal(b)
	for i := range requests {
		if take(requests[i].from, requests[i].cost) {
			total += requests[i].cost
		}
	}
	return total
}

// newIdeal returns an exact limiter, which is asked at instants that never go back.
func newIdeal(b bound) func(at, cost int64) bool {
	switch b.algorithm {
	case tokenBucket:
		return idealBucket(b)
	case slidingLog:
		return idealLog(b)
	}
	return idealWindow(b)
}

func idealBucket(b bound) func(at, cost int64) bool {
	var owed, last int64 // in 1/window tokens
	return func(at, cost int64) bool {
		owed, last = max(0, owed-b.count*(at-last)), at
		if owed+cost*b.window > b.burst*b.window {
			return false
		}
		owed += cost * b.window
		return true
	}
}

func idealLog(b bound) func(at, cost int64) bool {
	var entries []span
	var used int64
	return func(at, cost int64) bool {
		for len(entries) > 0 && entries[0].to <= at-b.window {
			used -= entries[0].cost
			entries = entries[1:]
		}
		if used+cost > b.count {
			return false
		}
		used += cost
		entries = append(entries, span{to: at, cost: cost})
		return true
	}
}

// idealWindow is a fixed window, or with a weight of the one before a sliding one.
func idealWindow(b bound) func(at, cost int64) bool {
	var window, used, previous int64
	return func(at, cost int64) bool {
		if now := at / b.window; now > window {
			previous = 0
			if now == window+1 {
				previous = used
			}
			window, used = now, 0
		}
		weight := int64(0)
		if b.algorithm == slidingWindow {
			weight = (previous*((window+1)*b.window-at) + b.window - 1) / b.window
		}
		if weight+used+cost > b.count {
			return false
		}
		used += cost
		return true
	}
}
