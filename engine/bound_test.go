package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestNoMoreThanAllShares lets sidecars spend at random, first with the store and then alone, all within one window. What
// each admits in it is at most its share, or what it had admitted before the loss if that is more; a bucket hands out what
// it earns meanwhile besides. So all together admit at most what was used before, and all shares.
func TestNoMoreThanAllShares(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		for seed := range uint64(boundRounds) {
			r := rand.New(rand.NewPCG(seed, uint64(a)))
			live, count := 1+r.IntN(7), 1+r.Int64N(40)
			inFleet(t, live, counted(a, count, time.Minute), func(t *testing.T, f *fleet) {
				began := time.Now()
				before := f.spendAtRandom(r, 30)
				f.lose(everything)
				after := f.spendAtRandom(r, 150)
				share := max(count/int64(live), 1)
				earned := int64(0)
				if a == limit.TokenBucket {
					earned = share * int64(time.Since(began)) / int64(time.Minute)
				}
				for n := range live {
					if got, bound := before[n]+after[n], max(before[n], share)+earned; got > bound {
						t.Fatalf("seed %d: sidecar %d of %d admitted %d and then %d, more than %d of a limit of %d", seed, n, live, before[n], after[n], bound, count)
					}
				}
			})
		}
	})
}

// spendAtRandom sends requests of small costs through random engines within half a minute, and returns what each admitted.
func (f *fleet) spendAtRandom(r *rand.Rand, requests int) []int64 {
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
