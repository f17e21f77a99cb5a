package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// steady is a budget for tests in which calls have to be decided on a busy machine, but those that cannot be must not last.
const steady = 900 * time.Millisecond

// watch is callers that spend without end, and what they were told.
type watch struct {
	mu      sync.Mutex // guards what follows
	decided int64
	lost    map[string]int64 // undecided, by reason
	first   time.Time        // of the undecided
	last    time.Time        // of the undecided
	stop    chan struct{}
	callers sync.WaitGroup
}

// watchOver starts eight callers, with a pause of 4 ms between calls. next is the charge of a caller's i-th call.
func watchOver(t *testing.T, r *Redis, next func(i int) []limit.Charge) *watch {
	t.Helper()
	w := &watch{stop: make(chan struct{}), lost: map[string]int64{}}
	for caller := range 8 {
		w.callers.Go(func() {
			pace := time.NewTicker(4 * time.Millisecond)
			defer pace.Stop()
			for i := caller; ; i += 8 {
				select {
				case <-w.stop:
					return
				case <-pace.C:
				}
				w.note(spend(r, next(i)...))
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *watch) note(decisions []limit.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range decisions {
		if d.Outcome == limit.Undecided {
			w.lost[d.Reason]++
			w.last = time.Now()
			if w.first.IsZero() {
				w.first = w.last
			}
			return
		}
	}
	w.decided++
}

// end stops the callers and waits for them. It may be called again.
func (w *watch) end() {
	w.mu.Lock()
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.mu.Unlock()
	w.callers.Wait()
}

// awaitDecided waits for n more decisions with none lost in the last 200 ms.
func (w *watch) awaitDecided(t *testing.T, n int64) {
	t.Helper()
	before, _ := w.seen()
	servers.Await(t, fmt.Sprintf("%d decisions", n), func() error {
		decided, lost := w.seen()
		w.mu.Lock()
		defer w.mu.Unlock()
		if decided-before < n || time.Since(w.last) < 200*time.Millisecond {
			return fmt.Errorf("%d decided, %v lost, the last one %v ago", decided-before, lost, time.Since(w.last))
		}
		return nil
	})
}

// awaitLost waits for a call that stays undecided.
func (w *watch) awaitLost(t *testing.T) {
	t.Helper()
	_, before := w.seen()
	servers.Await(t, "an undecided call", func() error {
		_, lost := w.seen()
		return notYet(total(lost) > total(before))
	})
}

// seen is how many calls were decided so far, and why others were not.
func (w *watch) seen() (int64, map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost := map[string]int64{}
	for why, n := range w.lost {
		lost[why] = n
	}
	return w.decided, lost
}

// lastLost is when a call was undecided for the last time.
func (w *watch) lastLost() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// lostFor is how long calls were undecided, from the first to the last.
func (w *watch) lostFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.Sub(w.first)
}

// wantNoneLost ends the watch and fails the test if a call was undecided.
func (w *watch) wantNoneLost(t *testing.T) {
	t.Helper()
	w.end()
	decided, lost := w.seen()
	if total(lost) > 0 || decided == 0 {
		t.Errorf("%d calls decided, undecided: %v", decided, lost)
	}
}

func total(lost map[string]int64) (n int64) {
	for _, some := range lost {
		n += some
	}
	return n
}

// trips notes which shards' breakers opened.
type trips struct {
	mu     sync.Mutex // guards opened
	opened map[string]int
}

func (b *trips) note(shard string, _, to breaker.State, _ string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened == nil {
		b.opened = map[string]int{}
	}
	if to == breaker.Open {
		b.opened[shard]++
	}
}

// names are the shards whose breakers have opened.
func (b *trips) names() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]int{}
	for name, n := range b.opened {
		all[name] = n
	}
	return all
}
