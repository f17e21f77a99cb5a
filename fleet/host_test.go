package fleet

import (
	"bufio"
	"testing"
	"time"
)

// TestAHostThatTakesProcessors is one that took a fiftieth of their time or more, and for two seconds after that.
func TestAHostThatTakesProcessors(t *testing.T) {
	h := &host{}
	const half = time.Second / 2
	for i, step := range []struct {
		taken time.Duration // of the two processors' second
		takes bool
	}{{0, false}, {10 * time.Millisecond, false}, {20 * time.Millisecond, true}, {0, true}, {0, true}, {0, true}, {0, false}, {time.Second, true}} {
		now := time.Duration(i) * half
		h.note(now, times{h.last.taken + step.taken, h.last.all + time.Second})
		if h.takes(now) != step.takes {
			t.Errorf("after %v, of which the host took %v in the last half second, it takes processors: %v", now, step.taken, h.takes(now))
		}
	}
	h = &host{}
	h.note(0, times{})
	if h.takes(0) {
		t.Error("a host of which nothing is known takes processors")
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

// TestTheKernelTellsTheTimes of all processors, and that they go on.
func TestTheKernelTellsTheTimes(t *testing.T) {
	first, ok := processors()
	if !ok || first.all <= 0 || first.taken < 0 || first.taken > first.all {
		t.Fatalf("the processors' times are %+v, known: %v", first, ok)
	}
	await(t, "processors' times that go on", func() bool {
		second, ok := processors()
		return ok && second.all > first.all && second.taken >= first.taken
	})
	for _, text := range []string{"", "cpu 1 2 3 4 5 6 7\n", "cpu 1 2 3 4 5 6 7 x\n", "intr 1 2 3 4 5 6 7 8\n"} {
		if got, ok := parseTimes(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got, ok := parseTimes("cpu  1 2 3 4 5 6 7 8 90 90\ncpu0 1 1\n"); !ok || got != (times{80 * time.Millisecond, 360 * time.Millisecond}) {
		t.Errorf("got %+v (%v), want 80 ms of 360 ms", got, ok)
	}
}

// TestAHostThatTakesProcessorsMakesNoServerSilent before the bound and what is added to it, though a processor is idle.
func TestAHostThatTakesProcessorsMakesNoServerSilent(t *testing.T) {
	for name, takes := range map[string]bool{"takes none": false, "takes some": true} {
		t.Run(name, func(t *testing.T) {
			n, links, ends := pair(t)
			n.host = &host{}
			n.host.next.Store(int64(time.Hour))
			if takes {
				n.host.until.Store(int64(time.Hour))
			}
			c := owe(t, links[0], bufio.NewReader(ends[0]))
			l := links[0]
			for _, step := range []struct {
				quiet  time.Duration
				silent bool
			}{{time.Hour + time.Millisecond, !takes}, {time.Hour + crowdedFor, true}} {
				l.mu.Lock()
				l.watch.spoke = l.watch.clock - step.quiet
				l.flight.head().sent = l.watch.spoke
				l.watch.asked = 1
				l.watch.quiet, l.watch.idle = true, -time.Hour // processors were idle for an hour and more
				l.mu.Unlock()
				l.watch.look()
				if l.silent.Load() != step.silent {
					t.Fatalf("after %v the server is silent: %v, want %v", step.quiet, l.silent.Load(), step.silent)
				}
			}
			if err := <-c.done; err != errSilent {
				t.Errorf("the call ended with %v, want %v", err, errSilent)
			}
		})
	}
}
