package faults

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// A machine that is busy with something else stalls every process for longer than the store's budget. No bound on time can be
// judged then, so a row that missed one is run again. In make test, which runs beside other work, a row that misses one each time is
// excused, and the table shows it; in make test-faults it is not. Bounds on what was decided are excused likewise only where the machine
// stood for so long that callers gave up: then no answer tells what was decided.
const (
	tries      = 3
	stallFrom  = 8 * time.Millisecond // a tick that late is a stall
	waitFrom   = 0.4                  // part of the time in which some process waited for a processor; the rows themselves make for half of that
	crowdedFor = 200 * time.Millisecond
	idleFrom   = 0.05                  // part of the processors' time that is idle at least; the rows take a small part of it
	stolenFrom = 10 * time.Millisecond // the least that a sidecar can see of the time that the host of this machine gives to other machines
)

// stalls watches how late a tick of this process comes, and how much the kernel saw processes wait.
type stalls struct {
	begun  time.Time
	length time.Duration
	waited time.Duration // of the kernel's count, at the start; in the end what came to it
	idled  time.Duration // of the processors' count, at the start
	stolen time.Duration // likewise
	done   chan struct{}
	ended  sync.WaitGroup
	count  int
	worst  time.Duration
}

func watchStalls() *stalls {
	s := &stalls{begun: time.Now(), waited: waitedForCPU(), idled: idled(), stolen: stolen(), done: make(chan struct{})}
	s.ended.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-s.done:
				return
			case <-tick.C:
			}
			now := time.Now()
			if late := now.Sub(last); late >= stallFrom {
				s.count++
				s.worst = max(s.worst, late)
			}
			last = now
		}
	})
	return s
}

// end stops watching, and says whether the machine was busy with something else.
func (s *stalls) end() (busy bool) {
	close(s.done)
	s.ended.Wait()
	s.waited = waitedForCPU() - s.waited
	s.length = time.Since(s.begun)
	return s.count > 0 || s.part() > waitFrom
}

// crowded says whether no processor was idle so far, or the host of this machine took some away. A sidecar gives a silent server up to crowdedFor
// more then, because one on the same machine waits for a processor, too.
func (s *stalls) crowded() bool {
	return stolen()-s.stolen >= stolenFrom || float64(idled()-s.idled) < idleFrom*float64(time.Since(s.begun))*float64(runtime.NumCPU())
}

// starved says whether the machine stood for so long that callers may have given up.
func (s *stalls) starved() bool { return s.worst >= patience/4 }

func (s *stalls) part() float64 { return float64(s.waited) / float64(s.length) }

// String is for the table: how often and how long the machine stood, the part of the time in which some process waited, and whether a
// processor was idle.
func (s *stalls) String() string {
	text := fmt.Sprintf("%dx %v %.0f%%", s.count, s.worst.Round(time.Millisecond), 100*s.part())
	if s.crowded() {
		text += ", none idle or some stolen"
	}
	return text
}

// awaitQuiet waits for a second without stalls, and gives up after ten.
func awaitQuiet() {
	for range 10 {
		s := watchStalls()
		pass(time.Second)
		if !s.end() {
			return
		}
	}
}

// waitedForCPU is how long, since the machine started, some process waited for a processor; 0 where the kernel does not tell.
func waitedForCPU() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	var total int64
	_, after, _ := strings.Cut(string(text), "total=")
	fmt.Sscan(after, &total)
	return time.Duration(total) * time.Microsecond
}

// idled is how long the processors were idle since the machine started, all together. Where the kernel does not tell, one is idle all the time.
func idled() time.Duration {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	var up, idle float64
	fmt.Sscan(string(text), &up, &idle)
	return time.Duration(idle * float64(time.Second))
}

// stolen is how much of the processors' time the host of this machine gave to other machines; none where the kernel does not tell.
func stolen() time.Duration {
	total, err := servers.Stolen()
	if err != nil {
		return 0
	}
	return total
}
