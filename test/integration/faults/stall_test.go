package faults

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A machine that is busy with something else stalls every process for longer than the store's budget. No bound on time can be
// judged then, so a row that missed one is run again. In make test, which runs beside other work, a row that misses one each time is
// excused, and the table shows it; in make test-faults it is not. Bounds on what was decided are never excused.
const (
	tries     = 3
	stallFrom = 8 * time.Millisecond // a tick that late is a stall
	waitFrom  = 0.4                  // part of the time in which somebody waited for a processor; the rows themselves make for half of that
)

// stalls watches how late a tick of this process comes, and how much the kernel saw processes wait.
type stalls struct {
	begun  time.Time
	length time.Duration
	waited time.Duration // of the kernel's count, at the start; in the end what came to it
	done   chan struct{}
	ended  sync.WaitGroup
	count  int
	worst  time.Duration
}

func watchStalls() *stalls {
	s := &stalls{begun: time.Now(), waited: waitedForCPU(), done: make(chan struct{})}
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

func (s *stalls) part() float64 { return float64(s.waited) / float64(s.length) }

// String is for the table: how often and how long the machine stood, and the part of the time that somebody waited.
func (s *stalls) String() string {
	return fmt.Sprintf("%dx %v %.0f%%", s.count, s.worst.Round(time.Millisecond), 100*s.part())
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
