package exact

import (
	"slices"
	"sort"
)

// settled is how long after its caller gave up a request may still be charged, in microseconds.
const settled = 10_000_000

// falseRefusals is the refused requests that the bound surely had room for, beside what was admitted and the false
// refusals before: what it would have admitted more.
func (h history) falseRefusals(b bound) history {
	refusals := h.of(func(e *event) bool { return e.outcome == refused })
	slices.SortFunc(refusals, func(x, y event) int { return int(x.from - y.from) })
	room := newRoom(b, newLedger(h))
	return refusals.of(func(e *event) bool {
		if e.cost > b.capacity() || room.left(e.span) < e.cost {
			return false
		}
		room.take(e.span)
		return true
	})
}

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
	s := sums{total: []int64{0}}
	for _, one := range all {
		s.add(one)
	}
	return s
}

// add appends a cost that is not earlier than the last.
func (s *sums) add(one span) {
	s.at = append(s.at, one)
	s.total = append(s.total, s.total[len(s.total)-1]+one.cost)
}

// upTo is the cost up to an instant, included.
func (s sums) upTo(at int64) int64 {
	return s.total[sort.Search(len(s.at), func(i int) bool { return s.at[i].to > at })]
}

// room is what a bound surely has left. Spans are asked for in the order of their begins.
type room struct {
	bound
	ledger
	taken sums  // by false refusals
	owed  int64 // by a bucket, in 1/window tokens, at an instant
	last  int64 // that instant
	next  int   // of byTo, which the bucket does not owe yet
}

func newRoom(b bound, l ledger) *room { return &room{bound: b, ledger: l, taken: newSums(nil)} }

// left is what was surely left at every instant of the span.
func (r *room) left(s span) int64 {
	switch r.algorithm {
	case tokenBucket:
		return r.leftInBucket(s)
	case slidingLog:
		return r.count - r.between(s.from-r.window+1, s.to) - r.takenSince(s.from-r.window+1)
	}
	return r.leftInWindow(s)
}

// take takes what was left.
func (r *room) take(s span) {
	r.owed += s.cost * r.window
	r.taken.add(span{to: s.from, cost: s.cost})
}

func (r *room) takenSince(begin int64) int64 {
	return r.taken.total[len(r.taken.at)] - r.taken.upTo(begin-1)
}

// leftInBucket charges what had surely ended at its end, and all else that had begun at once, without what comes back
// from the begin of the span on.
func (r *room) leftInBucket(s span) int64 {
	pass := func(to int64) { r.owed, r.last = max(0, r.owed-r.count*(to-r.last)), to }
	for ; r.next < len(r.byTo.at) && r.byTo.at[r.next].to <= s.from; r.next++ {
		pass(r.byTo.at[r.next].to)
		r.owed += r.byTo.at[r.next].cost * r.window
	}
	pass(s.from)
	return r.burst - (r.owed+r.window-1)/r.window - r.between(s.from+1, s.to)
}

// leftInWindow is 0 where the span is not within one window.
func (r *room) leftInWindow(s span) int64 {
	k := s.from / r.window
	if s.to/r.window != k {
		return 0
	}
	begin := k * r.window
	left := r.count - r.between(begin, s.to) - r.takenSince(begin)
	if r.algorithm == slidingWindow {
		previous := r.between(begin-r.window, begin-1) + r.takenSince(begin-r.window) - r.takenSince(begin)
		left -= (previous*(begin+r.window-s.from) + r.window - 1) / r.window
	}
	return left
}
