package load

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// row is a test on a Redis of its own.
type row func(t testing.TB, redis *servers.Redis)

const (
	trials    = 5
	lookEvery = 2 * time.Millisecond
	// starvedFrom is a wait for a processor that is as long as the sidecar's patience.
	starvedFrom = 100 * time.Millisecond
)

// judge runs a row. On a machine whose other work keeps Redis or its callers from the processor for too long, no answer can come in time, so
// a trial that missed something says nothing then, and the row is run again. What the last trial missed counts in any case.
func (r row) judge(t *testing.T) {
	for n := 1; ; n++ {
		var missed []string
		var longest time.Duration
		t.Run(fmt.Sprintf("trial %d", n), func(t *testing.T) {
			try := &trial{TB: t}
			redis := servers.StartRedis(t)
			waits := watchWaits(redis.Pid())
			defer func() {
				missed, longest = try.missed, waits.end()
				t.Logf("the longest wait for a processor was %v; missed: %v", longest, missed)
			}()
			r(try, redis)
		})
		if t.Failed() || len(missed) == 0 {
			return
		}
		if longest < starvedFrom || n == trials {
			t.Fatalf("in trial %d, whose longest wait for a processor was %v: %v", n, longest, missed)
		}
	}
}

// trial is one run of a row. What it misses is kept until it is known whether Redis had a processor.
type trial struct {
	testing.TB
	missed []string
}

// Errorf keeps a miss.
func (t *trial) Errorf(format string, args ...any) {
	t.missed = append(t.missed, fmt.Sprintf(format, args...))
}

// waits watches how long a process and this one wait for a processor.
type waits struct {
	pid     int
	longest time.Duration // the process's wait between two looks, or by how much a look of this one came late
	done    chan struct{}
	ended   sync.WaitGroup
}

func watchWaits(pid int) *waits {
	w := &waits{pid: pid, done: make(chan struct{})}
	w.ended.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for looked, last := time.Now(), w.waited(); ; {
			ended := false
			select {
			case <-w.done:
				ended = true
			case <-tick.C:
			}
			now, at := w.waited(), time.Now()
			w.longest = max(w.longest, now-last, at.Sub(looked)-lookEvery)
			if ended {
				return
			}
			looked, last = at, now
		}
	})
	return w
}

// end stops watching, and returns the longest wait.
func (w *waits) end() time.Duration {
	close(w.done)
	w.ended.Wait()
	return w.longest
}

// waited is how long the main thread of the process has waited for a processor since its start; 0 where the system does not tell.
func (w *waits) waited() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", w.pid))
	if err != nil {
		return 0
	}
	var ran, waited time.Duration
	fmt.Sscan(string(text), &ran, &waited)
	return waited
}
