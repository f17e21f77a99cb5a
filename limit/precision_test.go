package limit_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mesh/spillway/limit"
)

// TestTokenBucketHoldsItsRate lets a greedy client spend each token the moment it comes back, and asks when the last one
// came: exactly then, to the microsecond, so that no error adds up. (A burst of one microsecond's tokens or less loses what
// overflows between two ticks of the clock, as any bucket does; such limits are not asked here.)
func TestTokenBucketHoldsItsRate(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, l := range []limit.Limit{
		bucket(1, year, 1), bucket(3, year, 3), bucket(1, mnt, 1), bucket(7, sec, 7), bucket(1000, time.Hour, 10),
		bucket(999_983, sec, 2), bucket(999_983, sec, 999_983), bucket(1_000_000, sec, 1), bucket(999_999_999_989, 24*time.Hour, 100),
	} {
		var state limit.State
		now, taken := int64(start), l.Burst
		spend(t, &state, limit.Charge{Limit: l, Cost: l.Burst}, now)
		for range 100_000 {
			d := spend(t, &state, limit.Charge{Limit: l, Cost: 1, Each: true}, now)
			taken += d.Charged
			if d.Outcome == limit.Refused {
				now += d.RetryAfter.Microseconds()
			}
			if now > start+40*year.Microseconds() {
				break
			}
		}
		// All but the burst came at count per window, so this is the last one's moment.
		came := new(big.Int).Mul(big.NewInt(taken-l.Burst), big.NewInt(l.Window.Microseconds()))
		due := roundUp(came, big.NewInt(l.Count)).Int64()
		spent := now - start
		if next := l.Window.Microseconds()/l.Count + 1; spent < due || spent > due+next {
			t.Errorf("%d per %v, burst %d: %d tokens took %d µs, want %d", l.Count, l.Window, l.Burst, taken, spent, due)
		}
	}
}

// TestTokenBucketNeverAdmitsMoreInAnyInterval checks the law itself, over all intervals between admitted requests.
func TestTokenBucketNeverAdmitsMoreInAnyInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.TokenBucket)
		var state limit.State
		var taken []limit.Entry // Sum is the cost here
		now := int64(start)
		for range 40 {
			now += anyPause(t, l)
			cost := anyCost(t, l)
			if spend(t, &state, limit.Charge{Limit: l, Cost: cost}, now).Outcome == limit.Allowed {
				taken = append(taken, limit.Entry{At: now, Sum: cost})
			}
		}
		window := big.NewInt(l.Window.Microseconds())
		for i := range taken {
			sum := new(big.Int)
			for _, e := range taken[i:] {
				sum.Add(sum, big.NewInt(e.Sum))
				most := new(big.Int).Mul(big.NewInt(e.At-taken[i].At), big.NewInt(l.Count))
				most.Add(most, new(big.Int).Mul(big.NewInt(l.Burst), window))
				if new(big.Int).Mul(sum, window).Cmp(most) > 0 {
					t.Fatalf("%v tokens of %+v were admitted in %d µs", sum, l, e.At-taken[i].At)
				}
			}
		}
	})
}

// TestClockSetBackGivesNothing lets the clock jump back and forth within a window: what is admitted is no more than the
// furthest instant allows.
func TestClockSetBackGivesNothing(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := anyLimit(t, kind)
				l.Window = rapid.SampledFrom([]time.Duration{ms, sec, mnt, time.Hour}).Draw(t, "window of the clock")
				window := l.Window.Microseconds()
				var state limit.State
				furthest, taken := int64(start), int64(0)
				for range 60 {
					now := max(furthest+rapid.Int64Range(-window/2, window/8).Draw(t, "jump"), start)
					furthest = max(furthest, now)
					d := spend(t, &state, limit.Charge{Limit: l, Cost: anyCost(t, l)}, now)
					if d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining < 0 {
						t.Fatalf("after a jump of the clock: %+v", d)
					}
					taken += d.Charged
				}
				// Windows begin anew with each window that the furthest instant reached; the bucket fills with time.
				most := l.Count * ((furthest-start)/window + 1)
				if kind == limit.TokenBucket {
					refilled := new(big.Int).Mul(big.NewInt(furthest-start), big.NewInt(l.Count))
					most = l.Burst + refilled.Div(refilled, big.NewInt(window)).Int64()
				}
				if taken > most {
					t.Fatalf("%d tokens of %+v were admitted by a jumping clock, at most %d came", taken, l, most)
				}
			})
		})
	}
}

// TestClockSetBackLocksNobodyOut sets the clock back by up to twenty years after a counter was spent: the wait is at most a
// window longer than without that (for the windows: than it can ever be without that, since they remember no instant).
func TestClockSetBackLocksNobodyOut(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := anyLimit(t, kind)
				var state limit.State
				now := int64(start) + anyPause(t, l)
				spend(t, &state, limit.Charge{Limit: l, Cost: l.Capacity()}, now)
				before := spend(t, &state, limit.Charge{Limit: l, Cost: 1}, now)
				back := rapid.Int64Range(0, min(start-1, 2*limit.MaxWindow.Microseconds())).Draw(t, "back")
				now -= back
				after := spend(t, &state, limit.Charge{Limit: l, Cost: 1}, now)
				longest := map[limit.Algorithm]time.Duration{limit.FixedWindow: l.Window, limit.SlidingWindow: 2 * l.Window}
				before.RetryAfter = max(before.RetryAfter, longest[kind])
				if after.RetryAfter < 0 || after.RetryAfter > before.RetryAfter+l.Window {
					t.Fatalf("%+v: wait %v, after the clock was set back by %d µs %v", l, before.RetryAfter, back, after.RetryAfter)
				}
				if d := spend(t, &state, limit.Charge{Limit: l, Cost: 1}, now+after.RetryAfter.Microseconds()); d.Outcome != limit.Allowed {
					t.Fatalf("%+v: refused after a wait of %v, set back by %d µs: %+v", l, after.RetryAfter, back, d)
				}
			})
		})
	}
}
