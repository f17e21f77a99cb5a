package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func bucket(count int64, window time.Duration, burst int64) limit.Limit {
	return limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: window, Burst: burst}
}

func TestTokenBucketSpendsAndRefills(t *testing.T) {
	runSteps(t, bucket(10, mnt, 3), []stepRow{
		{0, peeking, 1, nil, false, yes, 3, 0, 0, 0},
		{0, spending, 2, nil, false, yes, 1, 2, 12 * sec, 0},
		{0, spending, 2, nil, false, no, 1, 0, 12 * sec, 6 * sec},
		{0, spending, 1, nil, false, yes, 0, 1, 18 * sec, 0},
		{6*sec - us, spending, 1, nil, false, no, 0, 0, 12*sec + us, us},
		{6 * sec, spending, 1, nil, false, yes, 0, 1, 18 * sec, 0},
		{9 * sec, peeking, 1, nil, false, no, 0, 0, 15 * sec, 3 * sec},
		{24 * sec, peeking, 1, nil, false, yes, 3, 0, 0, 0},
		{24 * sec, spending, 4, nil, false, no, 3, 0, 0, 0},
	})
}

func TestTokenBucketKeepsFractions(t *testing.T) {
	rows := []stepRow{{0, spending, 3, nil, false, yes, 0, 3, sec, 0}}
	// A third of a second is no whole number of microseconds: the second token comes 333,334 µs after the first.
	rows = append(rows,
		stepRow{333_333 * us, spending, 1, nil, false, no, 0, 0, 666_667 * us, us},
		stepRow{333_334 * us, spending, 1, nil, false, yes, 0, 1, sec, 0},
		stepRow{666_667 * us, spending, 1, nil, false, yes, 0, 1, sec, 0},
		stepRow{sec, spending, 1, nil, false, yes, 0, 1, sec, 0},
		stepRow{1333_333 * us, spending, 1, nil, false, no, 0, 0, 666_667 * us, us},
		stepRow{1333_334 * us, spending, 1, nil, false, yes, 0, 1, sec, 0})
	runSteps(t, bucket(3, sec, 3), rows)
}

func TestTokenBucketGivesBackNeverAboveFull(t *testing.T) {
	state := runSteps(t, bucket(10, sec, 10), []stepRow{
		{0, refunding, 5, nil, false, yes, 10, 0, 0, 0},
		{0, spending, 4, nil, false, yes, 6, 4, 400 * ms, 0},
		{0, refunding, 1, nil, false, yes, 7, -1, 300 * ms, 0},
		{0, refunding, 1 << 53, nil, false, yes, 10, -3, 0, 0},
	})
	if state.At != 0 || state.Used != 0 {
		t.Errorf("a bucket that is full again is %s, not the zero state", show(state))
	}
}

func TestTokenBucketDebitEndsAtMinusCount(t *testing.T) {
	runSteps(t, bucket(10, sec, 5), []stepRow{
		{0, debiting, 8, nil, false, yes, 0, 8, 800 * ms, 0},
		{0, peeking, 1, nil, false, no, 0, 0, 800 * ms, 400 * ms},
		{0, debiting, 100, nil, false, yes, 0, 7, 1500 * ms, 0},
		{0, debiting, 1, nil, false, yes, 0, 0, 1500 * ms, 0},
		{1100*ms - us, peeking, 1, nil, false, no, 0, 0, 400*ms + us, us},
		{1100 * ms, peeking, 1, nil, false, yes, 1, 0, 400 * ms, 0},
	})
}

func TestTokenBucketEachTakesWhatIsLeft(t *testing.T) {
	runSteps(t, bucket(10, sec, 10), []stepRow{
		{0, spending, 7, nil, true, yes, 3, 7, 700 * ms, 0},
		{0, spending, 5, nil, true, no, 0, 3, sec, 500 * ms},
		{0, spending, 5, nil, true, no, 0, 0, sec, 500 * ms},
		{0, spending, 11, nil, true, no, 0, 0, sec, sec},
	})
}

func TestTokenBucketLimitChangedInFlight(t *testing.T) {
	raised, lowered, low, slower := bucket(20, sec, 20), bucket(6, sec, 6), bucket(1, mnt, 1), bucket(10, mnt, 10)
	runSteps(t, bucket(10, sec, 10), []stepRow{
		{0, spending, 10, nil, false, yes, 0, 10, sec, 0},
		{0, peeking, 1, &raised, false, yes, 10, 0, 500 * ms, 0},                // the difference is there at once
		{0, peeking, 1, &lowered, false, no, 0, 0, 1666_667 * us, 833_334 * us}, // what was spent counts
		{0, peeking, 1, &low, false, no, 0, 0, 2 * mnt, 2 * mnt},                // but no more than a window gives
		{sec, peeking, 1, &low, false, no, 0, 0, 119 * sec, 119 * sec},          // from the same moment on
		{500 * ms, peeking, 1, &slower, false, no, 0, 0, 59500 * ms, 5500 * ms},
	})
}

func TestTokenBucketFractionsOfAnotherCount(t *testing.T) {
	state := limit.State{At: start, Rem: 900, Used: 5}
	got := spend(t, &state, limit.Charge{Limit: bucket(5, sec, 5), Op: peeking, Cost: 1}, start)
	if want := 200*ms + us; got.RetryAfter != want {
		t.Errorf("with a fraction of another count, retry after %v, want %v: the anchor rounded up", got.RetryAfter, want)
	}
}

func TestTokenBucketClockSetBack(t *testing.T) {
	rows := []stepRow{
		{10 * sec, spending, 10, nil, false, yes, 0, 10, sec, 0},
		{9500 * ms, spending, 1, nil, false, no, 0, 0, 1500 * ms, 600 * ms}, // no free tokens
		{9 * sec, spending, 1, nil, false, no, 0, 0, 2 * sec, 1100 * ms},
		{10 * sec, spending, 1, nil, false, no, 0, 0, sec, 100 * ms},
		{9*sec - us, spending, 1, nil, false, no, 0, 0, sec, 100 * ms}, // more than a window: begins again from here
		{9*sec - us, spending, 1, nil, false, no, 0, 0, sec, 100 * ms},
		{9100*ms - us, spending, 1, nil, false, yes, 0, 1, sec, 0},
	}
	runSteps(t, bucket(10, sec, 10), rows)
}

func TestTokenBucketWithoutTokens(t *testing.T) {
	runSteps(t, bucket(0, mnt, 0), []stepRow{
		{0, spending, 1, nil, false, no, 0, 0, mnt, mnt},
		{0, spending, 0, nil, true, no, 0, 0, mnt, mnt},
		{0, peeking, 1, nil, false, no, 0, 0, mnt, mnt},
		{0, refunding, 1, nil, false, yes, 0, 0, mnt, 0},
		{0, debiting, 1, nil, false, yes, 0, 0, mnt, 0},
	})
	runSteps(t, bucket(5, mnt, 0), []stepRow{{0, spending, 1, nil, false, no, 0, 0, 0, 0}})
}

func TestTokenBucketExtremes(t *testing.T) {
	const tenYears = limit.MaxWindow
	runSteps(t, bucket(1e12, tenYears, 1e12), []stepRow{
		{0, spending, 1 << 53, nil, false, no, 1e12, 0, 0, 0},
		{0, spending, 1e12, nil, false, yes, 0, 1e12, tenYears, 0},
		{0, debiting, 1 << 53, nil, false, yes, 0, 1e12, 2 * tenYears, 0},
		{0, spending, 1 << 53, nil, true, no, 0, 0, 2 * tenYears, 2 * tenYears},
		{tenYears, spending, 1, nil, false, no, 0, 0, tenYears, 316 * us},
		{2 * tenYears, spending, 1e12, nil, false, yes, 0, 1e12, tenYears, 0},
	})
	runSteps(t, bucket(1e12, us, 1e12), []stepRow{
		{0, spending, 1e12, nil, false, yes, 0, 1e12, us, 0},
		{us, spending, 1e12, nil, false, yes, 0, 1e12, us, 0},
	})
	runSteps(t, bucket(1, tenYears, 10), []stepRow{
		{0, spending, 10, nil, false, yes, 0, 10, 10 * tenYears, 0},
		{9 * tenYears, spending, 10, nil, false, no, 9, 0, tenYears, tenYears},
	})
}
