package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// lapses are times in which a process or this one did not run, though it had something to do.
type lapses struct {
	waited time.Duration // the longest wait for a processor between two looks, or by how much a look of this process came late
	still  time.Duration // the longest time on a processor, or in the kernel, without a single system call that ended
	taken  time.Duration // what the machine's host took from all processors together
}

const (
	lookEvery = 2 * time.Millisecond
	// waitsFrom is a wait for a processor that is as long as the sidecar's patience.
	waitsFrom = 100 * time.Millisecond
	// standsFrom is as long as Redis may be silent. A script takes less than a tenth of it.
	standsFrom = 10 * time.Millisecond
)

// excuse reports whether no answer may have come in time because of them.
func (l lapses) excuse() bool {
	return l.waited >= waitsFrom || l.still >= standsFrom || l.taken >= standsFrom
}

// String says what they are.
func (l lapses) String() string {
	return fmt.Sprintf("the longest wait for a processor was %v, Redis stood still for %v at most, and the host took %v", l.waited, l.still, l.taken)
}

// machine watches this process, and another one, for their lapses.
type machine struct {
	lapses
	pid   atomic.Int64 // of the other one; 0: there is none
	done  chan struct{}
	ended sync.WaitGroup
}

// progress is how far a process is.
type progress struct {
	pid    int64
	at     time.Time
	waited time.Duration // for a processor, since its start
	calls  int           // system calls that read or wrote
	busy   bool          // it runs, waits for a processor, or is in the kernel and cannot be woken
}

func watchMachine() *machine {
	m := &machine{done: make(chan struct{})}
	before := hostTook()
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
		m.taken = hostTook() - before
	})
	return m
}

// end stops watching.
func (m *machine) end() lapses {
	close(m.done)
	m.ended.Wait()
	return m.lapses
}

// look is where the main thread of the process is now. What the system does not tell is 0.
func (m *machine) look() progress {
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

// hostTook is how long the host has kept this machine's processors from running, all of them together; 0 where the system does not tell.
func hostTook() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	words := strings.Fields(string(text))
	if len(words) < 9 {
		return 0
	}
	hundredths, _ := strconv.Atoi(words[8]) // after the name: user, nice, system, idle, iowait, irq, softirq, steal
	return time.Duration(hundredths) * 10 * time.Millisecond
}

const (
	calmFor   = time.Second      // without a processor taken away
	calmAtAll = 30 * time.Second // after which a trial goes on as it is
)

// awaitCalm waits until the host takes no processors away.
func awaitCalm() {
	for end := time.Now().Add(calmAtAll); time.Now().Before(end); {
		before := hostTook()
		<-time.After(calmFor)
		if hostTook()-before < standsFrom {
			return
		}
	}
}

// A Redis that works on one command for long stands still.
func TestARedisThatStandsStillIsSeen(t *testing.T) {
	redis := servers.StartRedis(t)
	busy := watchMachine()
	busy.pid.Store(int64(redis.Pid()))
	redis.Do(t, "EVAL", "local t = redis.call('TIME') local from = t[1] * 1e6 + t[2] repeat t = redis.call('TIME') until t[1] * 1e6 + t[2] > from + 200000", "0")
	if got := busy.end(); got.still < standsFrom {
		t.Errorf("beside a script of 200 ms: %v", got)
	}
}
