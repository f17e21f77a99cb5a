package limit_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mesh/spillway/limit"
)

// What the algorithms promise, held against exact references that share nothing with them: big integers and plain lists.

// anyLimit draws a valid limit of an algorithm, from the smallest to the largest numbers.
func anyLimit(t *rapid.T, kind limit.Algorithm) limit.Limit {
	most := int64(limit.MaxCount)
	if kind == limit.SlidingLog {
		most = 100
	}
	windows := []time.Duration{us, 7 * us, ms, sec, sec, mnt, mnt, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, limit.MaxWindow}
	l := limit.Limit{Algorithm: kind, Window: rapid.SampledFrom(windows).Draw(t, "window")}
	l.Count = rapid.OneOf(rapid.Int64Range(1, min(most, 30)), rapid.Int64Range(1, most), rapid.Just(min(most, 999_983))).Draw(t, "count")
	l.Burst = rapid.OneOf(rapid.Just(l.Count), rapid.Int64Range(1, 2*l.Count)).Draw(t, "burst")
	l.Burst = min(l.Burst, limit.MaxCount)
	if l.Validate() != nil {
		l.Burst = l.Count
	}
	return l
}

// anyCost draws a cost that often fits.
func anyCost(t *rapid.T, l limit.Limit) int64 {
	capacity := l.Capacity()
	return rapid.OneOf(rapid.Int64Range(1, max(capacity/8, 1)), rapid.Int64Range(1, capacity), rapid.Just(capacity+1)).Draw(t, "cost")
}

// anyPause draws a time to let pass, in microseconds.
func anyPause(t *rapid.T, l limit.Limit) int64 {
	window := l.Window.Microseconds()
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, window/20+1), rapid.Int64Range(0, window), rapid.Int64Range(0, 3*window)).Draw(t, "pause")
}

func TestTokenBucketIsTheExactBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.TokenBucket)
		count, window := big.NewInt(l.Count), big.NewInt(l.Window.Microseconds())
		full := new(big.Int).Mul(big.NewInt(l.Burst), window)
		debt := new(big.Int) // in 1/window tokens
		var state limit.State
		now := int64(start)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			pause, cost := anyPause(t, l), anyCost(t, l)
			now += pause
			debt.Sub(debt, new(big.Int).Mul(big.NewInt(pause), count))
			if debt.Sign() < 0 {
				debt.SetInt64(0)
			}
			after := new(big.Int).Add(debt, new(big.Int).Mul(big.NewInt(cost), window))
			want := limit.Decision{At: now, Outcome: limit.Refused}
			if after.Cmp(full) <= 0 {
				want.Outcome, want.Charged = limit.Allowed, cost
				debt.Set(after)
			} else if cost <= l.Burst {
				want.RetryAfter = duration(roundUp(new(big.Int).Sub(after, full), count))
			}
			want.Remaining = new(big.Int).Div(new(big.Int).Sub(full, debt), window).Int64()
			want.ResetAfter = duration(roundUp(debt, count))
			if cost > l.Burst {
				want.RetryAfter = want.ResetAfter
			}
			got := spend(t, &state, limit.Charge{Limit: l, Cost: cost}, now)
			if got != want {
				t.Fatalf("cost %d at %d of %+v:\ngot  %+v\nwant %+v", cost, now, l, got, want)
			}
		}
	})
}

// TestGivingBackToABucketEarnsNothing: a bucket that gets back what was taken from it has no more than one that was never touched, but
// for what is rounded to a whole token.
func TestGivingBackToABucketEarnsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.TokenBucket)
		var real, ideal limit.State
		now := int64(start)
		others := func() {
			for range rapid.IntRange(0, 5).Draw(t, "others") {
				now += anyPause(t, l) / 4
				c := limit.Charge{Limit: l, Cost: anyCost(t, l)}
				if spend(t, &real, c, now).Outcome == limit.Allowed && spend(t, &ideal, c, now).Outcome != limit.Allowed {
					t.Fatalf("%d passed only where %+v had been taken", c.Cost, l)
				}
			}
		}
		others()
		took := spend(t, &real, limit.Charge{Limit: l, Cost: anyCost(t, l)}, now)
		others()
		if took.Charged > 0 {
			now += anyPause(t, l) / 4
			back := limit.Charge{Limit: l, Op: limit.Refund, Cost: took.Charged, Until: limit.RefundUntil(l, &took)}
			spend(t, &real, back, now)
		}
		peek := limit.Charge{Limit: l, Op: limit.Peek}
		with, without := spend(t, &real, peek, now).Remaining, spend(t, &ideal, peek, now).Remaining
		if with > without+1 {
			t.Fatalf("%d left at %d, %d had nothing been taken and given back, of %+v", with, now, without, l)
		}
	})
}

func TestSlidingLogNeverHoldsMoreThanItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.SlidingLog)
		var state limit.State
		var taken []limit.Entry // Sum is the cost here
		now := int64(start)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += anyPause(t, l)
			cost := anyCost(t, l)
			var used int64
			for _, e := range taken {
				if e.At > now-l.Window.Microseconds() {
					used += e.Sum
				}
			}
			got := spend(t, &state, limit.Charge{Limit: l, Cost: cost}, now)
			if allowed := used+cost <= l.Count; allowed != (got.Outcome == limit.Allowed) {
				t.Fatalf("cost %d with %d of %d used: %+v", cost, used, l.Count, got)
			}
			if got.Outcome == limit.Allowed {
				taken = append(taken, limit.Entry{At: now, Sum: cost})
				used += cost
			}
			if got.Remaining != l.Count-used {
				t.Fatalf("with %d of %d used, remaining is %d", used, l.Count, got.Remaining)
			}
		}
	})
}

func TestFixedWindowNeverAdmitsMoreThanItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.FixedWindow)
		var state limit.State
		used := map[int64]int64{}
		now := int64(start)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += anyPause(t, l)
			cost, window := anyCost(t, l), now/l.Window.Microseconds()
			got := spend(t, &state, limit.Charge{Limit: l, Cost: cost}, now)
			if allowed := used[window]+cost <= l.Count; allowed != (got.Outcome == limit.Allowed) {
				t.Fatalf("cost %d with %d of %d used: %+v", cost, used[window], l.Count, got)
			}
			used[window] += got.Charged
			if got.Remaining != l.Count-used[window] {
				t.Fatalf("with %d of %d used, remaining is %d", used[window], l.Count, got.Remaining)
			}
		}
	})
}

func TestSlidingWindowIsItsFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, limit.SlidingWindow)
		var state limit.State
		used := map[int64]int64{}
		now, window := int64(start), l.Window.Microseconds()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += anyPause(t, l)
			cost, current := anyCost(t, l), now/window
			// previous × (1 − elapsed/window), rounded up
			weight := new(big.Int).Mul(big.NewInt(used[current-1]), big.NewInt(window-now%window))
			weighed := roundUp(weight, big.NewInt(window)).Int64()
			got := spend(t, &state, limit.Charge{Limit: l, Cost: cost}, now)
			if allowed := weighed+used[current]+cost <= l.Count; allowed != (got.Outcome == limit.Allowed) {
				t.Fatalf("cost %d with %d and %d of %d used: %+v", cost, weighed, used[current], l.Count, got)
			}
			used[current] += got.Charged
			if got.Remaining != l.Count-weighed-used[current] {
				t.Fatalf("with %d and %d of %d used, remaining is %d", weighed, used[current], l.Count, got.Remaining)
			}
		}
	})
}

// TestRetryAndResetAreExact holds every wait against the moment it names, and the moment before.
func TestRetryAndResetAreExact(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := anyLimit(t, kind)
				var state limit.State
				now := int64(start)
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					now += anyPause(t, l)
					cost := anyCost(t, l)
					op := rapid.SampledFrom([]limit.Op{spending, spending, spending, refunding, debiting}).Draw(t, "op")
					got := spend(t, &state, limit.Charge{Limit: l, Cost: cost, Op: op}, now)
					if got.Outcome == limit.Refused && cost <= l.Capacity() {
						passesAt(t, state, l, cost, now, got.RetryAfter)
					}
					fullAt(t, state, l, now, got.ResetAfter)
				}
			})
		})
	}
}

var kinds = []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog}

func passesAt(t *rapid.T, state limit.State, l limit.Limit, cost, now int64, after time.Duration) {
	at := now + after.Microseconds()
	if after <= 0 {
		t.Fatalf("cost %d of %+v is refused and may be retried after %v", cost, l, after)
	}
	if d := spend(t, &state, limit.Charge{Limit: l, Cost: cost, Op: peeking}, at-1); d.Outcome != limit.Refused {
		t.Fatalf("cost %d of %+v passes before the %v it was told to wait, state %+v", cost, l, after, state)
	}
	if d := spend(t, &state, limit.Charge{Limit: l, Cost: cost, Op: peeking}, at); d.Outcome != limit.Allowed {
		t.Fatalf("cost %d of %+v is refused after the %v it was told to wait, state %+v", cost, l, after, state)
	}
}

func fullAt(t *rapid.T, state limit.State, l limit.Limit, now int64, after time.Duration) {
	at := now + after.Microseconds()
	if used := state.Used > 0 || state.Prev > 0 || len(state.Log) > 0; used {
		if expires := state.Expires(l, now); expires != at && expires != 0 {
			t.Fatalf("state %+v of %+v is full after %v and expires %d µs later", state, l, after, expires-at)
		}
	}
	if d := spend(t, &state, limit.Charge{Limit: l, Cost: 1, Op: peeking}, at); d.Remaining != l.Capacity() {
		t.Fatalf("state %+v of %+v has %d left after the %v until reset", state, l, d.Remaining, after)
	}
	if l.Algorithm == limit.FixedWindow || after == 0 {
		return
	}
	if d := spend(t, &state, limit.Charge{Limit: l, Cost: l.Capacity(), Op: peeking}, at-1); d.Outcome == limit.Allowed {
		t.Fatalf("state %+v of %+v is full before the %v until reset", state, l, after)
	}
}

func roundUp(n, by *big.Int) *big.Int {
	sum := new(big.Int).Add(n, by)
	return sum.Sub(sum, big.NewInt(1)).Div(sum, by)
}

func duration(micros *big.Int) time.Duration { return time.Duration(micros.Int64()) * time.Microsecond }
