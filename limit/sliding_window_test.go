package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func sliding(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.SlidingWindow, Count: count, Window: window}
}

func TestSlidingWindowWeighsTheWindowBefore(t *testing.T) {
	runSteps(t, sliding(10, mnt), []stepRow{
		{30 * sec, peeking, 1, nil, false, yes, 10, 0, 0, 0},
		{30 * sec, spending, 8, nil, false, yes, 2, 8, 90 * sec, 0},
		{59 * sec, spending, 3, nil, false, no, 2, 0, 61 * sec, 8500 * ms}, // 8 weigh 7 from 7.5 s into the next window on
		{mnt, peeking, 3, nil, false, no, 2, 0, mnt, 7500 * ms},
		{67500*ms - us, spending, 3, nil, false, no, 2, 0, 52500*ms + us, us},
		{67500 * ms, spending, 3, nil, false, yes, 0, 3, 112500 * ms, 0},
		{90 * sec, peeking, 3, nil, false, yes, 3, 0, 90 * sec, 0}, // 8 weigh 4, and 3
		{2*mnt - us, peeking, 7, nil, false, no, 6, 0, mnt + us, us},
		{2 * mnt, spending, 7, nil, false, yes, 0, 7, 2 * mnt, 0},
		{2 * mnt, spending, 11, nil, false, no, 0, 0, 2 * mnt, 2 * mnt},
		{2 * mnt, spending, 10, nil, false, no, 0, 0, 2 * mnt, 2 * mnt},
		{4 * mnt, spending, 10, nil, false, yes, 0, 10, 2 * mnt, 0},
	})
}

func TestSlidingWindowGivesBackBothWindows(t *testing.T) {
	state := runSteps(t, sliding(10, mnt), []stepRow{
		{0, spending, 6, nil, false, yes, 4, 6, 2 * mnt, 0},
		{90 * sec, spending, 2, nil, false, yes, 5, 2, 90 * sec, 0},
		{90 * sec, refunding, 4, nil, false, yes, 8, -4, 30 * sec, 0}, // 2 of this window, 2 of the one before
		{90 * sec, refunding, 10, nil, false, yes, 10, -4, 0, 0},
	})
	if state.At != 0 {
		t.Errorf("an empty window is %s, not the zero state", show(state))
	}
}

func TestSlidingWindowDebit(t *testing.T) {
	runSteps(t, sliding(10, mnt), []stepRow{
		{0, debiting, 50, nil, false, yes, 0, 20, 2 * mnt, 0},
		{0, peeking, 1, nil, false, no, 0, 0, 2 * mnt, 93 * sec}, // 20 weigh 9 at 33 s into the next window
		{93*sec - us, peeking, 1, nil, false, no, 0, 0, 27*sec + us, us},
		{93 * sec, peeking, 1, nil, false, yes, 1, 0, 27 * sec, 0},
	})
}

func TestSlidingWindowLimitChangedInFlight(t *testing.T) {
	raised, lowered, longer, shorter := sliding(20, mnt), sliding(4, mnt), sliding(10, time.Hour), sliding(10, sec)
	runSteps(t, sliding(10, mnt), []stepRow{
		{mnt, spending, 8, nil, false, yes, 2, 8, 2 * mnt, 0},
		{mnt, peeking, 1, &raised, false, yes, 12, 0, 2 * mnt, 0},
		{mnt, peeking, 1, &lowered, false, no, 0, 0, 2 * mnt, 97500 * ms},
		{mnt, peeking, 3, &longer, false, no, 2, 0, 119 * mnt, 66*mnt + 30*sec},
		{mnt + sec, peeking, 3, &shorter, false, no, 2, 0, sec, 125 * ms},
		{mnt + 2*sec, peeking, 3, &shorter, false, yes, 10, 0, 0, 0},
	})
}

func TestSlidingWindowClockSetBack(t *testing.T) {
	runSteps(t, sliding(3, mnt), []stepRow{
		{10 * mnt, spending, 3, nil, false, yes, 0, 3, 2 * mnt, 0},
		{9*mnt + 30*sec, spending, 1, nil, false, no, 0, 0, 150 * sec, 110 * sec},
		{9*mnt - sec, spending, 1, nil, false, no, 0, 0, 61 * sec, 21 * sec}, // today's window, with its count
		{9*mnt + 20*sec, spending, 1, nil, false, yes, 0, 1, 100 * sec, 0},
	})
}

func TestSlidingWindowExtremes(t *testing.T) {
	const tenYears = limit.MaxWindow
	begun := time.Duration(start%tenYears.Microseconds()) * us
	left := tenYears - begun
	runSteps(t, sliding(1e12, tenYears), []stepRow{
		{0, debiting, 1 << 53, nil, false, yes, 0, 2e12, left + tenYears, 0},
		{left, spending, 1e12, nil, false, no, 0, 0, tenYears, tenYears},
		{left + tenYears/2, spending, 1, nil, false, no, 0, 0, tenYears / 2, 158 * us},
		{left + tenYears/2 + 158*us, spending, 1, nil, false, yes, 0, 1, tenYears/2 + tenYears - 158*us, 0},
	})
	runSteps(t, sliding(0, sec), []stepRow{{0, spending, 1, nil, true, no, 0, 0, sec, sec}})
}
