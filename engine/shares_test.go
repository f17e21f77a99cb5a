package engine

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const year = 365 * 24 * time.Hour

func TestShareOf(t *testing.T) {
	for _, c := range []struct {
		name         string
		count, burst int64
		window       time.Duration
		live         int64
		wantCount    int64
		wantBurst    int64
	}{
		{"alone", 100, 20, time.Minute, 1, 100, 20},
		{"none known", 100, 20, time.Minute, 0, 100, 20},
		{"two", 100, 20, time.Minute, 2, 50, 10},
		{"three", 100, 20, time.Minute, 3, 33, 6},
		{"seven", 100, 20, time.Minute, 7, 14, 2},
		{"more than the burst", 100, 20, time.Minute, 30, 3, 1},
		{"more than the count", 100, 20, time.Minute, 1000, 1, 1},
		{"nothing", 0, 0, time.Minute, 3, 0, 0},
		{"no burst", 100, 0, time.Minute, 3, 33, 0},
		{"the largest", limit.MaxCount, limit.MaxCount, time.Second, 3, 333333333333, 333333333333},
		{"a burst of a hundred years", 3, 30, 10 * year, 2, 1, 10},
	} {
		for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
			whole := limit.Limit{Name: "n", Algorithm: a, Count: c.count, Window: c.window, Burst: c.burst}
			if a == limit.SlidingLog {
				whole.Count = min(whole.Count, limit.MaxLogCount)
			}
			if err := whole.Validate(); err != nil {
				t.Fatalf("%s: the test's own limit: %v", c.name, err)
			}
			got := shareOf(whole, c.live)
			if err := got.Validate(); err != nil {
				t.Errorf("%s: the share of a valid %v limit is not: %v", c.name, a, err)
			}
			want := whole
			want.Count, want.Burst = c.wantCount, c.wantBurst
			if a == limit.SlidingLog && c.count > limit.MaxLogCount {
				want.Count = limit.MaxLogCount / c.live
			}
			if a != limit.TokenBucket {
				want.Burst = got.Burst
			}
			if got != want {
				t.Errorf("%s: share of %+v is %+v, want %+v", c.name, whole, got, want)
			}
		}
	}
}
