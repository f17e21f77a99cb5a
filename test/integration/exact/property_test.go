package exact

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Oracle and brute force agree on small random histories, for every algorithm.

// bruteWorst tries all intervals between a begin and an end.
func bruteWorst(spans []span, allowed func(from, to int64) (int64, bool)) int64 {
	most := int64(-1 << 40)
	for _, x := range spans {
		for _, y := range spans {
			limit, ok := allowed(x.from, y.to)
			if x.from > y.to || !ok {
				continue
			}
			var within int64
			for _, s := range spans {
				if s.from >= x.from && s.to <= y.to {
					within += s.cost
				}
			}
			most = max(most, within-limit)
		}
	}
	return most
}

// randomSpans are up to n short spans in a short time, with costs up to most.
func randomSpans(r *rand.Rand, n int, time, length, most int64) []span {
	spans := make([]span, 1+r.IntN(n))
	for i := range spans {
		from := r.Int64N(time)
		spans[i] = span{from: from, to: from + r.Int64N(length), cost: 1 + r.Int64N(most)}
	}
	return spans
}

func TestWorstIntervalsAreThoseOfBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 8))
	for round := range 3000 {
		spans := randomSpans(r, 12, 40, 12, 3)
		b := bound{count: 1 + r.Int64N(6), burst: r.Int64N(8), window: 1 + r.Int64N(9)}
		want := map[string]int64{
			tokenBucket: bruteWorst(spans, func(from, to int64) (int64, bool) {
				return b.burst + b.count*(to-from)/b.window, true
			}),
			slidingLog:  bruteLog(spans, b),
			fixedWindow: bruteWindows(spans, b),
		}
		for algorithm, over := range want {
			b.algorithm = algorithm
			got := b.check(spans)
			if got.over() != over {
				t.Fatalf("round %d: %v: %v is over by %d, want %d; spans %v", round, b, got, got.over(), over, spans)
			}
		}
	}
}

// bruteLog tries all intervals against all numbers of windows that are longer than them.
func bruteLog(spans []span, b bound) int64 {
	most := int64(-1 << 40)
	for k := int64(1); k < 60; k++ {
		most = max(most, bruteWorst(spans, func(from, to int64) (int64, bool) {
			return k * b.count, to-from < k*b.window
		}))
	}
	return most
}

func bruteWindows(spans []span, b bound) int64 {
	aligned := slices.Clone(spans)
	for i := range aligned {
		aligned[i].from, aligned[i].to = aligned[i].from/b.window, aligned[i].to/b.window
	}
	return bruteWorst(aligned, func(from, to int64) (int64, bool) { return b.count * (to - from + 1), true })
}

// placeable reports whether an ideal limiter admits all spans at some choice of instants. It tries all choices, in all
// orders.
func placeable(spans []span, b bound) bool {
	instants := make([]span, len(spans))
	var place func(i int) bool
	place = func(i int) bool {
		if i == len(spans) {
			return admits(instants, b)
		}
		for at := spans[i].from; at <= spans[i].to; at++ {
			instants[i] = span{from: at, to: at, cost: spans[i].cost}
			if place(i + 1) {
				return true
			}
		}
		return false
	}
	return place(0)
}

// admits reports whether an ideal limiter admits all of these instants.
func admits(instants []span, b bound) bool {
	inOrder := slices.Clone(instants)
	slices.SortFunc(inOrder, func(x, y span) int { return int(x.from - y.from) })
	take := newIdeal(b)
	for _, s := range inOrder {
		if !take(s.from, s.cost) {
			return false
		}
	}
	return true
}

// A history that an ideal limiter could have made passes, for every algorithm and all costs. One that it could not have
// made fails in the cases of the package comment: for buckets with whole tokens per instant and for windows, with costs
// of 1.
func TestVerdictsAreThoseOfEveryPlacement(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 9))
	possible, impossible := 0, 0
	for round := range 4000 {
		costs := 1 + r.Int64N(2)
		spans := randomSpans(r, 6, 9, 4, costs)
		b := bound{count: 1 + r.Int64N(3), burst: 1 + r.Int64N(3), window: 1 + r.Int64N(4)}
		for _, algorithm := range algorithms {
			b.algorithm = algorithm
			passes := b.check(spans).over() <= 0
			can := placeable(spans, b)
			if can && !passes {
				t.Fatalf("round %d: %v could have admitted %v, but: %v", round, b, spans, b.check(spans))
			}
			// With fewer than one instant's tokens in the burst, instants between whole ones would matter, and these
			// are not tried.
			sharp := costs == 1 && (algorithm == fixedWindow || algorithm == tokenBucket && b.window == 1 &&
				b.burst >= b.count)
			if sharp && passes && !can {
				t.Fatalf("round %d: %v could not have admitted %v, but it passes", round, b, spans)
			}
			if can {
				possible++
			} else {
				impossible++
			}
		}
	}
	if possible < 1000 || impossible < 1000 {
		t.Errorf("%d possible histories and %d impossible ones: not enough of each", possible, impossible)
	}
}

// An exact limiter that is asked at random instants never refuses falsely, and one that refuses with room left has
// some.
func TestFalseRefusalsAreThoseWithRoom(t *testing.T) {
	for _, algorithm := range algorithms {
		r := rand.New(rand.NewPCG(13, 10))
		b := bound{algorithm: algorithm, count: 50, burst: 30, window: 1000}
		for _, harsh := range []bool{false, true} {
			h := askRandomly(r, b, harsh)
			n := len(h.falseRefusals(b))
			if harsh == (n == 0) {
				t.Errorf("%s, refusing with room left: %v: %d false refusals of %d requests", algorithm, harsh, n,
					len(h))
			}
			if over := b.check(h.spans()).over(); over > 0 {
				t.Errorf("%s: an exact limiter is over by %d", algorithm, over)
			}
		}
	}
}

// askRandomly asks an exact limiter at rising instants that only it knows. A harsh one refuses every third request.
func askRandomly(r *rand.Rand, b bound, harsh bool) history {
	take := newIdeal(b)
	var h history
	at := int64(1_000_000)
	for i := range 5000 {
		at += r.Int64N(20)
		e := event{span: span{from: at - r.Int64N(40), to: at + r.Int64N(40), cost: 1 + r.Int64N(3)}}
		if harsh && i%3 == 0 || !take(at, e.cost) {
			e.outcome = refused
		}
		h = append(h, e)
	}
	return h
}
