package engine

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const year = 365 * 24 * time.Hour

func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		count, burst         int64
		window               time.Duration
		live                 int64
		wantCount, wantBurst int64
	}{
		{100, 20, time.Minute, 0, 100, 20}, // none is known
		{100, 20, time.Minute, 1, 100, 20},
		{100, 20, time.Minute, 2, 50, 10},
		{100, 20, time.Minute, 3, 33, 6},
		{100, 20, time.Minute, 30, 3, 1},   // more than the burst
		{100, 20, time.Minute, 1000, 1, 1}, // more than the count
		{0, 0, time.Minute, 3, 0, 0},
		{100, 0, time.Minute, 3, 33, 0},
		{limit.MaxCount, limit.MaxCount, time.Second, 3, 333333333333, 333333333333},
		{3, 30, 10 * year, 2, 1, 10}, // a burst of a hundred years
	} {
		for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
			whole := limit.Limit{Name: "n", Algorithm: a, Count: c.count, Window: c.window, Burst: c.burst}
			got, want := shareOf(whole, c.live), whole
			if err := got.Validate(); err != nil {
				t.Errorf("the share of %+v is not valid: %v", whole, err)
			}
			want.Count, want.Burst = c.wantCount, c.wantBurst
			if a != limit.TokenBucket {
				want.Burst = got.Burst
			}
			if got != want {
				t.Errorf("the share of %+v among %d is %+v, want %+v", whole, c.live, got, want)
			}
		}
	}
}
