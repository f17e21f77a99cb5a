package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func logged(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.SlidingLog, Count: count, Window: window}
}

func TestSlidingLogCountsEveryWindow(t *testing.T) {
	runSteps(t, logged(5, mnt), []stepRow{
		{0, peeking, 1, nil, false, yes, 5, 0, 0, 0},
		{10 * sec, spending, 2, nil, false, yes, 3, 2, mnt, 0},
		{20 * sec, spending, 1, nil, false, yes, 2, 1, mnt, 0},
		{30 * sec, spending, 2, nil, false, yes, 0, 2, mnt, 0},
		{40 * sec, spending, 1, nil, false, no, 0, 0, 50 * sec, 30 * sec},
		{40 * sec, spending, 3, nil, false, no, 0, 0, 50 * sec, 40 * sec},
		{40 * sec, spending, 4, nil, false, no, 0, 0, 50 * sec, 50 * sec},
		{40 * sec, spending, 6, nil, false, no, 0, 0, 50 * sec, 50 * sec},
		{70*sec - us, spending, 1, nil, false, no, 0, 0, 20*sec + us, us},
		{70 * sec, spending, 2, nil, false, yes, 0, 2, mnt, 0}, // an entry of 10 s counts until, and not at, 70 s
		{90 * sec, peeking, 1, nil, false, yes, 3, 0, 40 * sec, 0},
		{130 * sec, peeking, 5, nil, false, yes, 5, 0, 0, 0},
	})
}

func TestSlidingLogGivesBackTheNewest(t *testing.T) {
	state := runSteps(t, logged(9, mnt), []stepRow{
		{0, spending, 3, nil, false, yes, 6, 3, mnt, 0},
		{10 * sec, spending, 3, nil, false, yes, 3, 3, mnt, 0},
		{20 * sec, spending, 3, nil, false, yes, 0, 3, mnt, 0},
		{30 * sec, refunding, 4, nil, false, yes, 4, -4, 40 * sec, 0}, // 3 of 20 s, 1 of 10 s
		{30 * sec, spending, 5, nil, false, no, 4, 0, 40 * sec, 30 * sec},
		{60 * sec, peeking, 1, nil, false, yes, 7, 0, 10 * sec, 0},
		{60 * sec, refunding, 100, nil, false, yes, 9, -2, 0, 0},
	})
	if len(state.Log) != 0 || state.At != 0 {
		t.Errorf("an empty log is %s, not the zero state", show(state))
	}
}

func TestSlidingLogEntriesOfOneInstantAreOne(t *testing.T) {
	var state limit.State
	for range 100 {
		spend(t, &state, limit.Charge{Limit: logged(1000, mnt), Cost: 3}, start)
	}
	if len(state.Log) != 1 || state.Log[0].Sum != 300 {
		t.Errorf("100 charges of 3 at one instant are kept as %s, want one entry of 300", show(state))
	}
}

func TestSlidingLogForgetsInTime(t *testing.T) {
	var state limit.State
	for i := range int64(100_000) {
		d := spend(t, &state, limit.Charge{Limit: logged(100, sec), Cost: 1}, start+i*10_000)
		if d.Outcome != limit.Allowed {
			t.Fatalf("charge %d at 100 per second was refused", i)
		}
		if len(state.Log) > 202 {
			t.Fatalf("after %d charges the log holds %d entries, of which 100 count", i, len(state.Log))
		}
	}
}

func TestSlidingLogDebitAndEach(t *testing.T) {
	runSteps(t, logged(5, mnt), []stepRow{
		{0, spending, 3, nil, true, yes, 2, 3, mnt, 0},
		{sec, spending, 3, nil, true, no, 0, 2, mnt, 59 * sec},
		{2 * sec, debiting, 50, nil, false, yes, 0, 5, mnt, 0},
		{2 * sec, peeking, 1, nil, false, no, 0, 0, mnt, mnt},
		{61 * sec, peeking, 1, nil, false, no, 0, 0, sec, sec},
	})
}

func TestSlidingLogLimitChangedInFlight(t *testing.T) {
	raised, lowered, longer := logged(20, mnt), logged(4, mnt), logged(10, time.Hour)
	runSteps(t, logged(10, mnt), []stepRow{
		{0, spending, 8, nil, false, yes, 2, 8, mnt, 0},
		{0, peeking, 1, &raised, false, yes, 12, 0, mnt, 0},
		{0, peeking, 1, &lowered, false, no, 0, 0, mnt, mnt},
		{30 * sec, peeking, 3, &longer, false, no, 2, 0, time.Hour - 30*sec, time.Hour - 30*sec},
	})
}

func TestSlidingLogClockSetBack(t *testing.T) {
	runSteps(t, logged(3, mnt), []stepRow{
		{10 * mnt, spending, 2, nil, false, yes, 1, 2, mnt, 0},
		{9*mnt + 30*sec, spending, 2, nil, false, no, 1, 0, 90 * sec, 90 * sec}, // no free tokens
		{9*mnt + 30*sec, spending, 1, nil, false, yes, 0, 1, 90 * sec, 0},       // counts from the newest entry on
		{9*mnt - us, spending, 1, nil, false, no, 0, 0, mnt, mnt},               // more than a window: all of it is now
		{9*mnt - us, spending, 1, nil, false, no, 0, 0, mnt, mnt},
		{10*mnt - us, spending, 3, nil, false, yes, 0, 3, mnt, 0},
	})
}

func TestSlidingLogWithoutTokens(t *testing.T) {
	runSteps(t, logged(0, mnt), []stepRow{
		{0, spending, 1, nil, true, no, 0, 0, mnt, mnt},
		{0, refunding, 1, nil, false, yes, 0, 0, mnt, 0},
	})
}
