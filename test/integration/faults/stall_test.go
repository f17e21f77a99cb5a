package faults

import (
	"sync"
	"time"
)

// A machine that is busy with something else stalls every process for longer than the store's budget. No bound on time can be
// judged then, so a row that missed one is run again. Bounds on what was decided are never excused.
const (
	stallFrom = 8 * time.Millisecond
	tries     = 3
)

// stalls watches how late a tick of this process comes.
type stalls struct {
	done  chan struct{}
	ended sync.WaitGroup
	count int
	worst time.Duration
}

func watchStalls() *stalls {
	s := &stalls{done: make(chan struct{})}
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

func (s *stalls) end() {
	close(s.done)
	s.ended.Wait()
}
