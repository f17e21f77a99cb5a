package servers

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

const trials = 5

// Judge runs a test that rests on time, at most five times. A trial that missed something does not count if the machine stood still during it: this
// process, or the one that is watched, waited that long for a processor, or the host took processors away. The last trial counts, unless the host
// took more than a twentieth of the processors' time during it: then the result is not judged, and make test lists it at its end. Wrong fails the
// test in any trial.
func Judge(t *testing.T, wait time.Duration, run func(t testing.TB, m *Machine)) {
	t.Helper()
	for n := 1; ; n++ {
		try, stalls, host := &trial{}, lapses{}, WatchProcessors(t)
		t.Run(fmt.Sprintf("trial %d", n), func(t *testing.T) {
			try.TB = t
			watch := watchMachine(t)
			var body sync.WaitGroup
			body.Go(func() { run(try, watch) })
			body.Wait()
			stalls = watch.end(t)
			t.Logf("%v; missed: %v", stalls, try.said())
		})
		if t.Failed() || !try.Failed() {
			return
		}
		if !stalls.excuse(wait) {
			t.Fatalf("in trial %d, %v: %v", n, stalls, try.said())
		}
		if n == trials {
			host.Miss(t, "in trial %d, %v: %v", n, stalls, try.said())
			return
		}
		awaitCalm(t)
	}
}

// trial is one run. What it misses is kept until it is known whether this machine had its processors.
type trial struct {
	testing.TB
	mu     sync.Mutex // guards missed
	missed []string
}

func (t *trial) miss(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.missed = append(t.missed, what)
}

func (t *trial) said() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.missed)
}

// Failed reports whether anything was missed, so that the servers of the trial show what they wrote.
func (t *trial) Failed() bool { return t.TB.Failed() || len(t.said()) > 0 }

// Wrong fails a test for what no stall of the machine explains.
func Wrong(t testing.TB, format string, args ...any) {
	t.Helper()
	if try, ok := t.(*trial); ok {
		t = try.TB
	}
	t.Errorf(format, args...)
}

// Error keeps a miss, and so do Errorf, and Fatal and Fatalf, which end the trial.
func (t *trial) Error(args ...any) { t.miss(fmt.Sprint(args...)) }

func (t *trial) Errorf(format string, args ...any) { t.miss(fmt.Sprintf(format, args...)) }

func (t *trial) Fatal(args ...any) {
	t.miss(fmt.Sprint(args...))
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) {
	t.miss(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

const (
	calmFor   = time.Second      // without a processor taken away
	calmAtAll = 30 * time.Second // after which a trial goes on as it is
)

// awaitCalm waits until the host takes no processors away.
func awaitCalm(t testing.TB) {
	for end := time.Now().Add(calmAtAll); time.Now().Before(end); {
		before := stolen(t)
		<-time.After(calmFor)
		if stolen(t)-before < standsFrom {
			return
		}
	}
}
