package exact

import (
	"slices"
	"sort"
)

// outcome is what a caller knows about its request.
type outcome uint8

const (
	admitted outcome = iota
	refused
	undecided // refused because Redis did not answer, or not answered: it may have been charged
)

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

// settled is how long after its caller gave up a request may still be charged.
const settled = 10_000_000

// ledger is all that may have been charged, by begin and by end.
type ledger struct{ byFrom, byTo sums }

func newLedger(h history) ledger {
	var from, to []span
	for i := range h {
		e := h[i]
		switch e.outcome {
		case refused:
			continue
		case undecided:
			e.to += settled
		}
		from = append(from, span{to: e.from, cost: e.cost})
		to = append(to, span{to: e.to, cost: e.cost})
	}
	return ledger{newSums(from), newSums(to)}
}

// between is the cost of all that may have been charged from begin on, up to end, both included.
func (l ledger) between(begin, end int64) int64 { return l.byFrom.upTo(end) - l.byTo.upTo(begin-1) }

// sums are costs in order of time, with their running total.
type sums struct {
	at    []span
	total []int64
}

func newSums(all []span) sums {
	slices.SortFunc(all, func(x, y span) int { return int(x.to - y.to) })
	s := sums{at: all, total: make([]int64, len(all)+1)}
	for i, one := range all {
		s.total[i+1] = s.total[i] + one.cost
	}
	return s
}

// upTo is the cost up to an instant, included.
func (s sums) upTo(at int64) int64 {
	return s.total[sort.Search(len(s.at), func(i int) bool { return s.at[i].to > at })]
}

// falseRefusals is the refused requests for which the bound surely had room.
func (h history) falseRefusals(b bound) history {
	refusals := h.of(func(e *event) bool { return e.outcome == refused })
	slices.SortFunc(refusals, func(x, y event) int { return int(x.from - y.from) })
	room := newRoom(b, newLedger(h))
	return refusals.of(func(e *event) bool { return e.cost <= b.capacity() && room(e.span) >= e.cost })
}

// newRoom returns what a bound surely had left at every instant of a span. Spans are asked for in the order of their begins.
func newRoom(b bound, l ledger) func(s span) int64 {
	switch b.algorithm {
	case tokenBucket:
		return bucketRoom(b, l)
	case slidingLog:
		return func(s span) int64 { return b.count - l.between(s.from-b.window+1, s.to) }
	}
	return func(s span) int64 { return windowRoom(b, l, s) }
}

// bucketRoom charges what had surely ended at its end, and all else that had begun at once, without what comes back from the begin of
// the span on.
func bucketRoom(b bound, l ledger) func(s span) int64 {
	var owed, last int64 // in 1/window tokens, at an instant
	next := 0
	pass := func(to int64) { owed, last = max(0, owed-b.count*(to-last)), to }
	return func(s span) int64 {
		for ; next < len(l.byTo.at) && l.byTo.at[next].to <= s.from; next++ {
			pass(l.byTo.at[next].to)
			owed += l.byTo.at[next].cost * b.window
		}
		pass(s.from)
		return b.burst - (owed+b.window-1)/b.window - l.between(s.from+1, s.to)
	}
}

// windowRoom is 0 where the span is not within one window.
func windowRoom(b bound, l ledger, s span) int64 {
	k := s.from / b.window
	if s.to/b.window != k {
		return 0
	}
	begin := k * b.window
	left := b.count - l.between(begin, s.to)
	if b.algorithm == slidingWindow {
		previous := l.between(begin-b.window, begin-1)
		left -= (previous*(begin+b.window-s.from) + b.window - 1) / b.window
	}
	return left
}
