package fleet

import (
	"testing"
	"testing/synctest"
	"time"
)

// busy is a load on which so many replies a second were seen when a call ran out of patience. Tests with one stop the clock: the bound is raised with time.
func busy(pace int64) *load {
	b := &load{most: 1000}
	b.rate, b.since = pace, processTime()
	b.late(40 * time.Millisecond)
	return b
}

// enterAll enters so many calls on keys that differ, and returns how many had room.
func enterAll(b *load, calls int, allow time.Duration, key func(i int) string) (entered int) {
	for i := range calls {
		if _, ok := b.enter(&Call{Key: key(i)}, allow, 0); ok {
			entered++
		}
	}
	return entered
}

func oneKey(int) string { return "k" }

func manyKeys(i int) string { return string(rune('a'+i%26)) + string(rune('a'+i/26%26)) }

func TestLoadHasNoBoundBelowTheLargestUntilCallsAreLate(t *testing.T) {
	b := &load{most: 1000}
	if n := enterAll(b, 2000, time.Millisecond, oneKey); n != 1000 {
		t.Errorf("%d calls entered, want 1000", n)
	}
}

// TestLoadFollowsWhatWasDone: at 10,000 replies a second a call with a patience of 40 ms may be the 200th, and is answered after 20.
func TestLoadFollowsWhatWasDone(t *testing.T) { synctest.Test(t, loadFollowsWhatWasDone) }

func loadFollowsWhatWasDone(t *testing.T) {
	for _, step := range []struct {
		pace  int64
		allow time.Duration
		want  int
	}{{10_000, 40 * time.Millisecond, 200}, {10_000, 100 * time.Millisecond, 500}, {100, 20 * time.Millisecond, fewest}, {1_000_000, time.Second, 1000}} {
		if n := enterAll(busy(step.pace), 2000, step.allow, manyKeys); n < step.want*9/10 || n > step.want {
			t.Errorf("%d calls with a patience of %v entered at %d replies a second, want %d", n, step.allow, step.pace, step.want)
		}
	}
}

// TestAFloodOnOneKeyLeavesRoom: it has a part of the room, and others have the rest.
func TestAFloodOnOneKeyLeavesRoom(t *testing.T) { synctest.Test(t, aFloodOnOneKeyLeavesRoom) }

func aFloodOnOneKeyLeavesRoom(t *testing.T) {
	b := busy(10_000)
	const allow = 40 * time.Millisecond
	if n := enterAll(b, 2000, allow, oneKey); n != 200/keyShare {
		t.Errorf("%d calls on one key entered, want %d", n, 200/keyShare)
	}
	if n := enterAll(b, 100, allow, manyKeys); n < 90 {
		t.Errorf("%d of 100 calls on other keys entered beside the flood", n)
	}
}

// TestAFloodOfOneCallerLeavesRoom: it has half of the room, whatever keys it asks for.
func TestAFloodOfOneCallerLeavesRoom(t *testing.T) { synctest.Test(t, aFloodOfOneCallerLeavesRoom) }

func aFloodOfOneCallerLeavesRoom(t *testing.T) {
	b := busy(10_000)
	const allow = 40 * time.Millisecond
	enter := func(calls int, caller func(i int) string) (entered int) {
		for i := range calls {
			if _, ok := b.enter(&Call{Key: manyKeys(i), Caller: caller(i)}, allow, 0); ok {
				entered++
			}
		}
		return entered
	}
	if n := enter(2000, oneKey); n != 200/callShare {
		t.Errorf("%d calls of one caller entered, want %d", n, 200/callShare)
	}
	if n := enter(90, manyKeys); n < 80 {
		t.Errorf("%d of 90 calls of other callers entered beside the flood", n)
	}
}

func TestRoomIsGivenBack(t *testing.T) { synctest.Test(t, roomIsGivenBack) }

func roomIsGivenBack(t *testing.T) {
	b := busy(10_000)
	for range 1000 {
		turn, ok := b.enter(&Call{Key: "k", Caller: "c"}, 20*time.Millisecond, 0)
		if !ok {
			t.Fatal("no room though every call has left")
		}
		b.leave(turn)
	}
	if n := b.flight.Load(); n != 0 {
		t.Errorf("%d calls are under way, want none", n)
	}
}

// TestTheBoundIsRaisedWhileNoCallIsLate: after some time there is none.
func TestTheBoundIsRaisedWhileNoCallIsLate(t *testing.T) {
	synctest.Test(t, theBoundIsRaisedWhileNoCallIsLate)
}

func theBoundIsRaisedWhileNoCallIsLate(t *testing.T) {
	b := busy(10_000)
	b.raised -= paceGrows
	if n := enterAll(b, 2000, 40*time.Millisecond, manyKeys); n < 230 || n > 251 {
		t.Errorf("%d calls entered one period later, want a quarter more than 200", n)
	}
	b = busy(10_000)
	b.raised -= time.Minute
	if n := enterAll(b, 2000, 40*time.Millisecond, oneKey); n != 1000 {
		t.Errorf("%d calls entered a minute later, want 1000", n)
	}
}

// TestTheBoundStaysWhileRepliesAreSlow: replies that take as long as the bound lets them show no room for more.
func TestTheBoundStaysWhileRepliesAreSlow(t *testing.T) {
	synctest.Test(t, theBoundStaysWhileRepliesAreSlow)
}

func theBoundStaysWhileRepliesAreSlow(t *testing.T) {
	b := busy(10_000)
	b.raised -= time.Minute
	if _, ok := b.enter(&Call{Key: "k"}, 40*time.Millisecond, 20*time.Millisecond); !ok || b.pace.Load() != 10_000 {
		t.Errorf("the pace is %d, want 10000 as before", b.pace.Load())
	}
}

// TestTheBoundEndsThoughRepliesAreSlow: a server that is slow by itself is not bound for ever by one late call.
func TestTheBoundEndsThoughRepliesAreSlow(t *testing.T) {
	synctest.Test(t, theBoundEndsThoughRepliesAreSlow)
}

func theBoundEndsThoughRepliesAreSlow(t *testing.T) {
	b := busy(10_000)
	for range 120 {
		turn, ok := b.enter(&Call{Key: "k"}, 40*time.Millisecond, 20*time.Millisecond)
		if !ok {
			t.Fatal("a call alone has no room")
		}
		b.leave(turn)
		<-time.After(paceHolds / 2)
	}
	if pace := b.pace.Load(); pace != 0 {
		t.Errorf("the pace is %d a minute after the last late call, want none", pace)
	}
}

// TestTheWayToADistantServerIsNotALine: how far away a server is does not hold the bound.
func TestTheWayToADistantServerIsNotALine(t *testing.T) {
	var u usual
	for range 100 {
		u.add(5 * time.Millisecond)
	}
	if got := u.lined(); got > time.Millisecond {
		t.Errorf("calls to a server that is 5 ms away wait %v in line, want none", got)
	}
	for range 100 {
		u.add(25 * time.Millisecond)
	}
	if got := u.lined(); got < 15*time.Millisecond {
		t.Errorf("calls whose replies take 20 ms longer than before wait %v in line", got)
	}
}

// TestAHurriedCallSetsNoBound: its patience was shorter than a healthy server may take, or than the way to it and back.
func TestAHurriedCallSetsNoBound(t *testing.T) {
	const ms = time.Millisecond
	for _, step := range []struct {
		patience, away time.Duration
		bound          bool
	}{{400 * time.Microsecond, ms, false}, {8 * ms, 5 * ms, false}, {16 * ms, 5 * ms, true}, {8 * ms, ms, true}, {5 * ms, 0, true}} {
		n := (&Fleet{bounds: Bounds{}.withDefaults()}).node("n")
		n.load.rate, n.load.since = 100, processTime()+time.Hour // it stays as it is
		if step.away > 0 {
			n.usual.add(step.away)
		}
		w := watch{link: &link{node: n}}
		w.report(false, false, step.patience)
		if n.Overloaded() != step.bound {
			t.Errorf("a patience of %v that ends, %v away, sets a bound: %v, want %v", step.patience, step.away, n.Overloaded(), step.bound)
		}
	}
}
