package fleet

import (
	"bufio"
	"testing"
	"time"
)

// TestWhatAHostTakes counts for two seconds, the most of it.
func TestWhatAHostTakes(t *testing.T) {
	h := &host{}
	h.note(0, times{})
	if took := h.takes(0); took != 0 {
		t.Errorf("a host of which nothing is known takes %v", took)
	}
	const ms = time.Millisecond
	for i, step := range []struct{ taken, takes time.Duration }{ // of the second that two processors have in half a second
		{0, 0}, {20 * ms, 20 * ms}, {50 * ms, 50 * ms}, {10 * ms, 50 * ms}, {0, 50 * ms}, {0, 50 * ms}, {30 * ms, 30 * ms},
		{600 * ms, crowdedFor}, {0, crowdedFor}, {0, crowdedFor}, {0, crowdedFor}, {19 * ms, 0},
	} {
		now := time.Duration(i) * takenEvery
		h.note(now, times{h.last.taken + step.taken, h.last.all + time.Second})
		if took := h.takes(now); took != step.takes {
			t.Errorf("after %v, with %v taken in the last half second, the host takes %v, want %v", now, step.taken, took, step.takes)
		}
	}
	if took := h.takes(time.Hour); took != 0 {
		t.Errorf("an hour later the host takes %v", took)
	}
}

// TestWhatAHostHasJustBegunToTake counts before it is read the next time.
func TestWhatAHostHasJustBegunToTake(t *testing.T) {
	const ms = time.Millisecond
	h := &host{}
	if took := h.lately(times{time.Second, 2 * time.Second}); took != 0 {
		t.Errorf("a host whose times before are not known takes %v", took)
	}
	h.before, h.last = times{3000 * ms, 90_000 * ms}, times{3000 * ms, 91_000 * ms}
	for _, step := range []struct{ taken, all, takes time.Duration }{
		{0, 0, 0}, {0, 100 * ms, 0}, {10 * ms, 100 * ms, 0}, {22 * ms, 100 * ms, 20 * ms}, {60 * ms, 200 * ms, 50 * ms}, {500 * ms, 1000 * ms, crowdedFor},
	} {
		if took := h.lately(times{3000*ms + step.taken, 91_000*ms + step.all}); took != step.takes {
			t.Errorf("with %v taken of %v since the last reading, and none of the second before, the host takes %v, want %v", step.taken, step.all, took, step.takes)
		}
	}
}

// TestWhatAHostTakesAfterAWhileWithoutCalls: an old reading does not hide it, and one step of the kernel's count is not half of the time.
func TestWhatAHostTakesAfterAWhileWithoutCalls(t *testing.T) {
	const ms = time.Millisecond
	h := &host{}
	h.note(0, times{0, time.Second})
	h.note(time.Hour, times{0, 2 * time.Hour})
	for _, step := range []struct{ taken, all, takes time.Duration }{{0, 20 * ms, 0}, {10 * ms, 20 * ms, 20 * ms}, {50 * ms, 100 * ms, 100 * ms}} {
		if took := h.lately(times{step.taken, 2*time.Hour + step.all}); took != step.takes {
			t.Errorf("with %v taken of %v since the first call, the host takes %v, want %v", step.taken, step.all, took, step.takes)
		}
	}
}

// TestAHostIsReadBeforeItExcusesNothing: half of the time since a reading was taken away, and none before.
func TestAHostIsReadBeforeItExcusesNothing(t *testing.T) {
	read, ok := processors()
	if !ok {
		t.Fatal("the kernel does not tell the processors' times")
	}
	h := &host{before: times{read.taken - time.Hour, read.all - 2*time.Hour}}
	for late, want := range map[time.Duration]bool{0: true, crowdedFor - 1: true, crowdedFor: false} {
		if got := h.excuses(0, late); got != want {
			t.Errorf("late by %v a server is excused: %v, want %v", late, got, want)
		}
	}
}

// TestTheHostIsReadTwiceASecond at most.
func TestTheHostIsReadTwiceASecond(t *testing.T) {
	h := newHost()
	for _, step := range []struct{ now, next time.Duration }{
		{takenEvery - 1, takenEvery}, {takenEvery, 2 * takenEvery}, {takenEvery + 1, 2 * takenEvery}, {3 * takenEvery, 4 * takenEvery},
	} {
		h.tick(step.now)
		if next := time.Duration(h.next.Load()); next != step.next {
			t.Errorf("at %v the next reading is due at %v, want %v", step.now, next, step.next)
		}
	}
}

// TestALookReadsTheHost when that is due.
func TestALookReadsTheHost(t *testing.T) {
	n, links, _ := pair(t)
	n.host = newHost()
	n.host.next.Store(0)
	links[0].watch.look()
	if n.host.next.Load() == 0 {
		t.Error("a look at a link did not read the processors' times")
	}
}

// TestAHostThatTakesProcessorsMakesNoServerSilent before the bound and what it takes, though a processor is idle.
func TestAHostThatTakesProcessorsMakesNoServerSilent(t *testing.T) {
	for _, takes := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			n, links, ends := pair(t)
			n.host = &host{}
			n.host.next.Store(int64(time.Hour))
			n.host.took.Store(int64(takes))
			n.host.until.Store(int64(time.Hour))
			owe(t, links[0], bufio.NewReader(ends[0]))
			w := &links[0].watch
			links[0].mu.Lock()
			defer links[0].mu.Unlock()
			quiet := func(late time.Duration) bool {
				w.spoke = w.clock - time.Hour - late
				links[0].flight.head().sent = w.spoke
				w.quiet, w.idle = true, -time.Hour // processors were idle for an hour and more
				links[0].silent.Store(false)
				return w.silentLocked()
			}
			for _, late := range []time.Duration{-1, takes - 1, takes} {
				if silent := quiet(late); silent != (late == takes) {
					t.Errorf("late by %v the server is silent: %v", late, silent)
				}
			}
			w.asked, w.passed = 1, w.clock
			if !quiet(0) {
				t.Error("the server answers on another link, so it has a processor, and this link is not silent")
			}
		})
	}
}
