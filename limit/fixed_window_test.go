package limit_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func fixed(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.FixedWindow, Count: count, Window: window}
}

func TestFixedWindowCountsPerAlignedWindow(t *testing.T) {
	runSteps(t, fixed(3, mnt), []stepRow{
		{50 * sec, peeking, 1, nil, false, yes, 3, 0, 10 * sec, 0},
		{50 * sec, spending, 2, nil, false, yes, 1, 2, 10 * sec, 0},
		{55 * sec, spending, 2, nil, false, no, 1, 0, 5 * sec, 5 * sec},
		{59 * sec, spending, 4, nil, false, no, 1, 0, sec, sec}, // never passes: the window's end
		{mnt - us, spending, 1, nil, false, yes, 0, 1, us, 0},
		{mnt, spending, 3, nil, false, yes, 0, 3, mnt, 0},
		{mnt, spending, 1, nil, true, no, 0, 0, mnt, mnt},
		{3 * mnt, peeking, 3, nil, false, yes, 3, 0, mnt, 0},
	})
}

func TestFixedWindowGivesBackThisWindowOnly(t *testing.T) {
	state := runSteps(t, fixed(5, mnt), []stepRow{
		{0, spending, 4, nil, false, yes, 1, 4, mnt, 0},
		{0, refunding, 1, nil, false, yes, 2, -1, mnt, 0},
		{mnt, refunding, 3, nil, false, yes, 5, 0, mnt, 0},
		{mnt, debiting, 50, nil, false, yes, 0, 10, mnt, 0},
		{mnt, refunding, 50, nil, false, yes, 5, -10, mnt, 0},
	})
	if state.At != 0 {
		t.Errorf("an empty window is %s, not the zero state", show(state))
	}
}

func TestFixedWindowLimitChangedInFlight(t *testing.T) {
	raised, lowered, longer, shorter := fixed(20, mnt), fixed(4, mnt), fixed(10, time.Hour), fixed(10, sec)
	runSteps(t, fixed(10, mnt), []stepRow{
		{mnt, spending, 8, nil, false, yes, 2, 8, mnt, 0},
		{mnt, peeking, 1, &raised, false, yes, 12, 0, mnt, 0},
		{mnt, peeking, 1, &lowered, false, no, 0, 0, mnt, mnt},
		{mnt, peeking, 3, &longer, false, no, 2, 0, 59 * mnt, 59 * mnt}, // what the longer window holds goes on
		{mnt + sec, peeking, 3, &shorter, false, yes, 10, 0, sec, 0},    // the shorter one has begun since
	})
}

func TestFixedWindowClockSetBack(t *testing.T) {
	runSteps(t, fixed(3, mnt), []stepRow{
		{10 * mnt, spending, 3, nil, false, yes, 0, 3, mnt, 0},
		{9*mnt + 30*sec, spending, 1, nil, false, no, 0, 0, 90 * sec, 90 * sec}, // goes on as the current window
		{9 * mnt, spending, 1, nil, false, no, 0, 0, 2 * mnt, 2 * mnt},
		{9*mnt - sec, spending, 1, nil, false, no, 0, 0, sec, sec}, // more than a window: today's window, with its count
		{9 * mnt, spending, 1, nil, false, yes, 2, 1, mnt, 0},
	})
}

func TestFixedWindowExtremes(t *testing.T) {
	runSteps(t, fixed(1e12, us), []stepRow{
		{0, spending, 1e12, nil, false, yes, 0, 1e12, us, 0},
		{0, spending, 1 << 53, nil, false, no, 0, 0, us, us},
		{us, spending, 1e12, nil, false, yes, 0, 1e12, us, 0},
	})
	runSteps(t, fixed(0, sec), []stepRow{
		{0, spending, 1, nil, true, no, 0, 0, sec, sec},
		{0, debiting, 1, nil, false, yes, 0, 0, sec, 0},
	})
}
