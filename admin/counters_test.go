package admin

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestAFullCounterIsNotOnItsWay: only a counter from which something was taken gets fuller, or has a window that ends.
func TestAFullCounterIsNotOnItsWay(t *testing.T) {
	for _, c := range []struct {
		of          limit.Algorithm
		count, left int64
		want        string
	}{
		{limit.TokenBucket, 5, 20, "full"}, // up to its burst
		{limit.TokenBucket, 5, 19, "fills"},
		{limit.SlidingWindow, 5, 5, "full"},
		{limit.SlidingWindow, 5, 4, "fills"},
		{limit.FixedWindow, 5, 5, "full"},
		{limit.FixedWindow, 5, 0, "ends"},
	} {
		l := limit.Limit{Algorithm: c.of, Count: c.count, Window: time.Minute, Burst: 20}
		if got := stateOf(&l, c.left); got != c.want {
			t.Errorf("%v with %d left of %d: %s, want %s", c.of, c.left, c.count, got, c.want)
		}
	}
}
