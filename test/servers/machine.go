package servers

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lapses are times in which a process or this one did not run, though it had something to do.
type lapses struct {
	waited time.Duration // the longest wait for a processor between two looks, or by how much a look of this process came late
	still  time.Duration // the longest time on a processor, or in the kernel, without a single system call that ended
	taken  time.Duration // what the machine's host took from all processors together
}

const (
	lookEvery = 2 * time.Millisecond
	// standsFrom is as long as Redis may be silent. A script takes less than a tenth of it.
	standsFrom = 10 * time.Millisecond
)

// excuse reports whether a trial may have missed something because of them, where a wait for a processor matters if it is that long.
func (l lapses) excuse(wait time.Duration) bool {
	return l.waited >= wait || l.still >= standsFrom || l.taken >= standsFrom
}

// String says what they are.
func (l lapses) String() string {
	return fmt.Sprintf("the longest wait for a processor was %v, the process that is watched stood still for %v at most, and the host took %v", l.waited, l.still, l.taken)
}

// Machine watches this process, and another one, for their lapses.
type Machine struct {
	lapses
	pid    atomic.Int64  // of the other one; 0: there is none
	stolen time.Duration // when watching began
	done   chan struct{}
	ended  sync.WaitGroup
}

// progress is how far a process is.
type progress struct {
	pid    int64
	at     time.Time
	waited time.Duration // for a processor, since its start
	calls  int           // system calls that read or wrote
	busy   bool          // it runs, waits for a processor, or is in the kernel and cannot be woken
}

// Watch watches another process, too.
func (m *Machine) Watch(pid int) { m.pid.Store(int64(pid)) }

func watchMachine(t testing.TB) *Machine {
	t.Helper()
	m := &Machine{stolen: stolen(t), done: make(chan struct{})}
	m.ended.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		last := m.look()
		for since, ended := last, false; !ended; {
			select {
			case <-m.done:
				ended = true
			case <-tick.C:
			}
			now := m.look()
			if now.pid != last.pid {
				last, since = now, now
				continue
			}
			m.waited = max(m.waited, now.waited-last.waited, now.at.Sub(last.at)-lookEvery)
			if !now.busy || now.calls != since.calls {
				m.still = max(m.still, last.at.Sub(since.at)-(now.waited-since.waited)) // a wait is counted when it is over
				since = now
			}
			last = now
		}
	})
	return m
}

// end stops watching.
func (m *Machine) end(t testing.TB) lapses {
	t.Helper()
	close(m.done)
	m.ended.Wait()
	m.taken = stolen(t) - m.stolen
	return m.lapses
}

// look is where the main thread of the process is now. What the system does not tell is 0.
func (m *Machine) look() progress {
	now := progress{at: time.Now(), pid: m.pid.Load()}
	if now.pid == 0 {
		return now
	}
	var ran time.Duration
	fmt.Sscan(now.read("schedstat"), &ran, &now.waited)
	io := strings.Fields(now.read("io"))
	for i := 1; i < len(io); i += 2 {
		if io[i-1] == "syscr:" || io[i-1] == "syscw:" {
			n, _ := strconv.Atoi(io[i])
			now.calls += n
		}
	}
	_, state, _ := strings.Cut(now.read("stat"), ") ")
	now.busy = len(io) > 0 && (strings.HasPrefix(state, "R") || strings.HasPrefix(state, "D"))
	return now
}

func (p *progress) read(name string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, name))
	return string(text)
}
