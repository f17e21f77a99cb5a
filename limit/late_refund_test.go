package limit

import (
	"math/rand/v2"
	"testing"
)

// TestLateRefundsOfALog: what is given back a while after it was taken makes room for no more than that, in no window.
func TestLateRefundsOfALog(t *testing.T) {
	const count, second = 10, 1_000_000
	type taken struct{ at, tokens, until, back int64 }
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(1, seed))
		var kept, late []taken
		counter, d := new(Counter), make([]Decision, 1)
		decide := func(now int64, c Charge) Decision {
			c.Key, c.Limit = "k", logged(count, sec)
			Decide(now, false, []Charge{c}, []*Counter{counter}, nil, d)
			return d[0]
		}
		for now := int64(future); now < future+20*second; now += r.Int64N(second / 5) {
			for len(late) > 0 && late[0].back <= now {
				decide(now, Charge{Op: Refund, Cost: late[0].tokens, Until: late[0].until})
				late = late[1:]
			}
			got := decide(now, Charge{Cost: 1 + r.Int64N(4)})
			if got.Outcome != Allowed {
				continue
			}
			if r.IntN(3) == 0 {
				late = append(late, taken{now, got.Charged, RefundUntil(logged(count, sec), &got), now + second/2})
				continue
			}
			kept = append(kept, taken{at: now, tokens: got.Charged})
			sum := int64(0)
			for _, k := range kept {
				if k.at > now-second {
					sum += k.tokens
				}
			}
			if sum > count {
				t.Fatalf("seed %d: %d count at %d, want at most %d", seed, sum, now, count)
			}
		}
	}
}
