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

func TestDebtSteps(t *testing.T) {
	const second = 1_000_000 // µs
	for _, c := range []struct {
		name  string
		limit limit.Limit
		steps [][3]int64 // at a second, add so much, and then so much is owed
	}{
		{"fixed window", limit.Limit{Algorithm: limit.FixedWindow, Count: 10, Window: 10 * time.Second},
			[][3]int64{{101, 3, 3}, {109, 2, 5}, {110, 0, 0}, {111, 4, 4}, {130, 0, 0}}},
		{"sliding window", limit.Limit{Algorithm: limit.SlidingWindow, Count: 10, Window: 10 * time.Second},
			[][3]int64{{101, 3, 3}, {110, 0, 3}, {114, 0, 2}, {119, 2, 3}, {120, 0, 2}, {129, 0, 1}, {130, 0, 0}}},
		{"a log counts as a sliding window", limit.Limit{Algorithm: limit.SlidingLog, Count: 10, Window: 10 * time.Second},
			[][3]int64{{101, 3, 3}, {115, 0, 2}, {145, 0, 0}}},
		{"a bucket counts for as long as it fills", limit.Limit{Algorithm: limit.TokenBucket, Count: 10, Burst: 40, Window: 10 * time.Second},
			[][3]int64{{121, 8, 8}, {159, 0, 8}, {180, 0, 4}, {200, 0, 0}}},
		{"refunds", limit.Limit{Algorithm: limit.SlidingWindow, Count: 10, Window: 10 * time.Second},
			[][3]int64{{101, 6, 6}, {110, 3, 9}, {110, -4, 5}, {110, -9, 0}}},
		{"a clock that is set back", limit.Limit{Algorithm: limit.FixedWindow, Count: 10, Window: 10 * time.Second},
			[][3]int64{{115, 3, 3}, {105, 1, 4}, {119, 0, 4}, {120, 0, 0}}},
		{"the largest", limit.Limit{Algorithm: limit.SlidingWindow, Count: limit.MaxCount, Window: limit.MaxWindow},
			[][3]int64{{101, limit.MaxCost, limit.MaxCost}, {3650 * 24 * 3600, 0, limit.MaxCost}}},
	} {
		d := debt{limit: c.limit}
		for i, s := range c.steps {
			d.advance(s[0] * second)
			d.add(s[1])
			if got := d.tokens(s[0] * second); got != s[2] {
				t.Errorf("%s, step %d: %d owed, want %d", c.name, i, got, s[2])
			}
		}
	}
}
