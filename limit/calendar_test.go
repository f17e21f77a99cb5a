package limit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/limit"
)

// months are 31, 28 and 31 days long, the second of which begins at future.
func months() *limit.Calendar {
	const day = 24 * 3600 * 1_000_000
	return &limit.Calendar{Edges: [4]int64{future - 31*day, future, future + 28*day, future + 59*day}}
}

// quota is a limit of 5 per calendar month.
func quota(c *limit.Calendar) limit.Limit {
	return limit.Limit{Algorithm: limit.FixedWindow, Count: 5, Window: 30 * 24 * time.Hour, Calendar: c}
}

type calendarRow struct {
	at       time.Duration // since future
	op       limit.Op
	cost     int64
	calendar *limit.Calendar

	want      limit.Outcome
	remaining int64
	charged   int64
	reset     time.Duration
	retry     time.Duration
}

// runCalendar runs a table on both twins.
func runCalendar(t *testing.T, rows []calendarRow) {
	t.Helper()
	client := connect(t)
	var state limit.State
	for i, row := range rows {
		charge := limit.Charge{Key: "quota", Limit: quota(row.calendar), Op: row.op, Cost: row.cost}
		now := future + row.at.Microseconds()
		want := limit.Decision{At: now, Outcome: row.want, Remaining: row.remaining, Charged: row.charged, ResetAfter: row.reset, RetryAfter: row.retry}
		if diff := cmp.Diff(want, spend(t, &state, charge, now)); diff != "" {
			t.Errorf("row %d in Go (- want, + got):\n%s", i+1, diff)
		}
		got, _, err := run(client, now, charge)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("row %d on Redis (- want, + got):\n%s", i+1, diff)
		}
	}
}

func TestCalendarWindowsHaveTheirOwnLengths(t *testing.T) {
	const day = 24 * time.Hour
	c := months()
	runCalendar(t, []calendarRow{
		{-us, spending, 4, c, yes, 1, 4, us, 0},
		{0, spending, 2, c, yes, 3, 2, 28 * day, 0},
		{27 * day, spending, 4, c, no, 3, 0, day, day},
		{28*day - us, spending, 3, c, yes, 0, 3, us, 0},
		{28 * day, peeking, 5, c, yes, 5, 0, 31 * day, 0},
		{28 * day, spending, 5, c, yes, 0, 5, 31 * day, 0},
		{50 * day, refunding, 2, c, yes, 2, -2, 9 * day, 0},
		{27 * day, spending, 3, c, no, 2, 0, 32 * day, 32 * day}, // set back: the window ahead goes on
	})
}

// Sidecars whose clocks disagree bring other windows along for the same instant. They count on one counter.
func TestCalendarWindowsOfSidecarsThatDisagree(t *testing.T) {
	const day = 24 * time.Hour
	c := months()
	const d = 24 * 3600 * 1_000_000
	early := &limit.Calendar{Edges: [4]int64{future - 62*d, future - 31*d, future, future + 28*d}}
	late := &limit.Calendar{Edges: [4]int64{future, future + 28*d, future + 59*d, future + 89*d}}
	lost := &limit.Calendar{Edges: [4]int64{future + 365*d, future + 396*d, future + 424*d, future + 455*d}}
	ancient := &limit.Calendar{Edges: [4]int64{1, 2, 3, 4}}
	runCalendar(t, []calendarRow{
		{-us, spending, 5, early, yes, 0, 5, us, 0},
		{-us, spending, 1, c, no, 0, 0, us, us},
		{0, spending, 1, late, yes, 4, 1, 28 * day, 0},
		{0, spending, 1, c, yes, 3, 1, 28 * day, 0},
		{0, spending, 1, early, yes, 2, 1, 28 * day, 0},
		{day, spending, 1, lost, yes, 1, 1, 30 * day, 0}, // not within its edges: counts on what is there
		{day, spending, 2, lost, no, 1, 0, 30 * day, 30 * day},
		{day, spending, 1, ancient, yes, 0, 1, 30 * day, 0},
		{day, spending, 1, c, no, 0, 0, 27 * day, 27 * day},
		{28 * day, spending, 1, lost, no, 0, 0, 30 * day, 30 * day}, // a new month, which only one that knows it can begin
		{28 * day, spending, 4, late, yes, 1, 4, 31 * day, 0},
		{28 * day, spending, 1, lost, yes, 0, 1, 30 * day, 0},
	})
}

// Sidecars with different databases of time zones may disagree about an edge. The later one has begun the window, and the earlier one does not move it
// back, or the count would end twice.
func TestCalendarWindowsOfDifferentDatabases(t *testing.T) {
	const day = 24 * time.Hour
	c, hourEarlier := months(), months()
	for i := range hourEarlier.Edges {
		hourEarlier.Edges[i] -= time.Hour.Microseconds()
	}
	runCalendar(t, []calendarRow{
		{0, spending, 3, c, yes, 2, 3, 28 * day, 0},
		{mnt, spending, 1, hourEarlier, yes, 1, 1, 28*day - time.Hour - mnt, 0},
		{2 * mnt, spending, 2, c, no, 1, 0, 28*day - 2*mnt, 28*day - 2*mnt},
	})
}

// A sidecar that does not know the window begins a count at its own instant, and the others go on with it.
func TestCalendarCountBegunOutsideOfItsEdges(t *testing.T) {
	const day = 24 * time.Hour
	runCalendar(t, []calendarRow{
		{day, spending, 2, &limit.Calendar{Edges: [4]int64{1, 2, 3, 4}}, yes, 3, 2, 30 * day, 0},
		{2 * day, spending, 1, months(), yes, 2, 1, 26 * day, 0},
		{28 * day, spending, 1, months(), yes, 4, 1, 31 * day, 0},
	})
}

func TestCalendarRefundsUntilItsWindowEnds(t *testing.T) {
	const day = 24 * time.Hour
	now := future + (3 * day).Microseconds()
	var state limit.State
	charge := limit.Charge{Limit: quota(months()), Cost: 1}
	d := spend(t, &state, charge, now)
	if got, want := limit.RefundUntil(charge.Limit, &d), future+(28*day).Microseconds()-1; got != want {
		t.Errorf("gives back until %d, want %d: the last instant of the month", got, want)
	}
}

func TestCalendarsAreOfFixedWindows(t *testing.T) {
	l := of(limit.TokenBucket, 5, time.Hour)
	l.Calendar = months()
	if l.Validate() == nil {
		t.Error("a token bucket with a calendar is valid")
	}
}
