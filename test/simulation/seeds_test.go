package simulation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What the usual seeds have to do together: fewer would find less.
const (
	usualSeeds     = 30
	leastDecisions = 500_000
	leastUndecided = 50_000 // without Redis
	leastFaults    = 300
)

// longestSeed ends a seed that hangs.
const longestSeed = 5 * time.Minute

// totals are what seeds did together.
type totals struct{ seeds, failed, seconds, decisions, undecided, faults int }

// totalsFormat is the line that a seed's process writes at its end.
const totalsFormat = "totals: %d failed, %d virtual seconds, %d decisions, %d without redis, %d faults"

func (t totals) String() string {
	return fmt.Sprintf(totalsFormat, t.failed, t.seconds, t.decisions, t.undecided, t.faults)
}

func (t *totals) add(o totals) {
	t.seeds += o.seeds
	t.failed += o.failed
	t.seconds += o.seconds
	t.decisions += o.decisions
	t.undecided += o.undecided
	t.faults += o.faults
}

// readTotals finds the line in what a process wrote.
func readTotals(out string) (t totals, found bool) {
	for line := range strings.Lines(out) {
		n, _ := fmt.Sscanf(line, totalsFormat, &t.failed, &t.seconds, &t.decisions, &t.undecided, &t.faults)
		if n == 5 {
			t.seeds = 1
			return t, true
		}
	}
	return totals{}, false
}

// totals are what this world did.
func (w *world) totals() totals {
	t := totals{seeds: 1, seconds: int((w.s.lasts + calmFor) / time.Second), faults: len(w.s.faults)}
	t.decisions = len(w.calls)
	for _, c := range w.calls {
		if c.degraded != "" {
			t.undecided++
		}
	}
	if len(w.violations) > 0 {
		t.failed = 1
	}
	return t
}

// TestSeeds simulates the usual seeds, as many at once as there are processors.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		return
	}
	began := time.Now()
	var sum totals
	var mu sync.Mutex // guards sum
	var next atomic.Uint64
	var found atomic.Bool
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < uint64(*seeds) && !(*first && found.Load()); i = next.Add(1) - 1 {
				done := simulateApart(t, *from+i)
				mu.Lock()
				sum.add(done)
				mu.Unlock()
				if done.failed > 0 {
					found.Store(true)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds, %d of them fail, %.2f virtual hours, %d decisions, %d of them without redis, %d faults, in %v",
		sum.seeds, sum.failed, float64(sum.seconds)/3600, sum.decisions, sum.undecided, sum.faults,
		time.Since(began).Round(100*time.Millisecond))
	if *seeds >= usualSeeds && sum.failed == 0 {
		sum.judge(t)
	}
}

// judge: the seeds did enough.
func (t totals) judge(test *testing.T) {
	if t.seeds < usualSeeds || t.decisions < leastDecisions || t.undecided < leastUndecided || t.faults < leastFaults {
		test.Errorf("the seeds did too little: at least %d seeds, %d decisions, %d without redis and %d faults must be",
			usualSeeds, leastDecisions, leastUndecided, leastFaults)
	}
}

// simulateApart simulates a seed in a process of its own, and reports what went wrong there.
func simulateApart(t *testing.T, seed uint64) totals {
	program, err := os.Executable()
	if err != nil {
		t.Error(err)
		return totals{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), longestSeed)
	defer cancel()
	run := exec.CommandContext(ctx, program, "-test.run=^TestSeed$", fmt.Sprint("-seed=", seed))
	// One processor: a bubble's goroutines mostly wait for each other.
	run.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
	out, err := run.CombinedOutput()
	done, whole := readTotals(string(out))
	if err != nil || !whole {
		done.failed = 1
		t.Errorf("%s\nseed %d fails (%v). Replay: make simulate SEED=%d", tail(string(out)), seed, err, seed)
	}
	return done
}

// tail is the end of what a process wrote, and its first lines: the text of a panic, and what a test reports.
func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	const head, rest = 30, 10
	if len(lines) > head+rest {
		lines = append(lines[:head:head], append([]string{"…"}, lines[len(lines)-rest:]...)...)
	}
	return strings.Join(lines, "\n")
}
