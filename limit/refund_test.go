package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestRefundEnds: tokens that were taken at the end of one window are not given to the next one, where others have spent since; nor
// those to a bucket or a log that time has given back already.
func TestRefundEnds(t *testing.T) {
	const second = int64(1_000_000)
	for name, row := range map[string]struct {
		algorithm   limit.Algorithm
		taken, back int64
		want        int64
	}{
		"fixed window, same":       {limit.FixedWindow, 10*second + 900_000, 10*second + 999_999, -2},
		"fixed window, next":       {limit.FixedWindow, 10*second + 900_000, 11 * second, 0},
		"sliding window, same":     {limit.SlidingWindow, 10*second + 900_000, 10*second + 999_999, -2},
		"sliding window, next":     {limit.SlidingWindow, 10*second + 900_000, 11 * second, 0},
		"token bucket, at once":    {limit.TokenBucket, 10*second + 999_999, 11*second + 299_998, -2},
		"token bucket, full again": {limit.TokenBucket, 10*second + 999_999, 11*second + 499_999, 0},
		"token bucket, in between": {limit.TokenBucket, 10 * second, 10*second + 400_000, -1},
		"log, within its window":   {limit.SlidingLog, 10 * second, 11*second - 1, -2},
		"log, after its window":    {limit.SlidingLog, 10 * second, 11*second + 1, 0},
	} {
		l := limit.Limit{Algorithm: row.algorithm, Count: 10, Burst: 10, Window: time.Second}
		states, took, said := []*limit.State{new(limit.State)}, make([]limit.Decision, 1), make([]limit.Decision, 1)
		limit.Decide(states, []limit.Charge{{Limit: l, Cost: 5}}, false, row.taken, took)
		limit.Decide(states, []limit.Charge{{Limit: l, Cost: 4}}, false, row.back, said)
		refund := limit.Charge{Limit: l, Cost: 2, Op: limit.Refund, Until: limit.RefundUntil(l, &took[0])}
		limit.Decide(states, []limit.Charge{refund}, false, row.back, said)
		if said[0].Charged != row.want || said[0].Outcome != limit.Allowed {
			t.Errorf("%s: %+v, want %d charged", name, said[0], row.want)
		}
	}
}
