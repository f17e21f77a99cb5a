package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// TestAnOutageBeginsWithNothingCounted: what the store had admitted is not taken from the share, and what the share
// admits is not charged to the store afterwards.
func TestAnOutageBeginsWithNothingCounted(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		inSidecars(t, 2, counted(a, 100, time.Hour), func(t *testing.T, f *sidecars) {
			f.spend(0, 60)
			f.lose(everything)
			if got := f.spend(0, 110); got != 50 {
				t.Errorf("admitted %d during the outage, want a share of 50", got)
			}
			f.lose(nothing)
			pass(time.Second)
			if got := f.usedBy("u"); got < 59 || got > 60 {
				t.Errorf("%d used at the store after the outage, want the 60 from before", got)
			}
		})
	})
}

// TestAShareIsKeptUntilItsWindowEnds: a store that is lost again and again gives no new share each time.
func TestAShareIsKeptUntilItsWindowEnds(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		inSidecars(t, 2, counted(a, 100, time.Minute), func(t *testing.T, f *sidecars) {
			toWindow()
			admitted := 0
			for range 10 {
				f.lose(everything)
				admitted += f.spend(0, 20)
				f.lose(nothing)
				pass(100 * time.Millisecond)
			}
			if admitted < 50 || admitted > 51 { // a bucket earns one meanwhile
				t.Errorf("admitted %d in ten outages of one window, want a share of 50", admitted)
			}
			pass(2 * time.Minute)
			f.lose(everything)
			if got := f.spend(0, 110); got != 50 {
				t.Errorf("admitted %d two windows later, want a share of 50", got)
			}
		})
	})
}

// TestAShareEndsWithTheWindowOfTheStoresClock, also where the sidecar's own is 20 s behind.
func TestAShareEndsWithTheWindowOfTheStoresClock(t *testing.T) {
	inSidecars(t, 1, counted(limit.FixedWindow, 10, time.Minute), func(t *testing.T, f *sidecars) {
		f.Memory = memory.New(memory.Config{Now: func() time.Time { return time.Now().Add(20 * time.Second) }})
		toWindow()
		pass(30 * time.Second)
		f.send(0, request("u", "", 1))
		f.lose(everything)
		if v := f.send(0, request("u", "", 1)); v.Decisions[0].ResetAfter != 10*time.Second {
			t.Errorf("the share ends after %v, want 10 s", v.Decisions[0].ResetAfter)
		}
	})
}

// TestNoMoreThanAllShares lets sidecars spend at random without the store, all within one window: together they admit
// at most one limit, at least one each, and what buckets earn meanwhile.
func TestNoMoreThanAllShares(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		for seed := range uint64(15) {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			live, count := 1+r.IntN(7), 1+r.Int64N(40)
			inSidecars(t, live, counted(a, count, time.Minute), func(t *testing.T, f *sidecars) {
				toWindow()
				f.lose(everything)
				bound := max(count/int64(live), 1)
				if a == limit.TokenBucket {
					bound += bound * 50 / 60
				}
				for n, got := range f.spendAtRandom(r, 150) {
					if got > bound {
						t.Fatalf("seed %d: sidecar %d of %d admitted %d of %d, at most %d", seed, n, live, got, count,
							bound)
					}
				}
			})
		}
	})
}

// spendAtRandom sends requests of small costs through random engines within 50 s, and returns what each admitted.
func (f *sidecars) spendAtRandom(r *rand.Rand, requests int) []int64 {
	admitted := make([]int64, len(f.engines))
	for range requests {
		pass(time.Duration(r.Int64N(int64(25*time.Second))) / time.Duration(requests) * 2)
		n, cost := r.IntN(len(f.engines)), 1+r.Uint64N(3)
		if !f.send(n, request("u", "", cost)).Refused {
			admitted[n] += int64(cost)
		}
	}
	return admitted
}
