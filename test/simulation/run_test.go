package simulation

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crew are goroutines of the simulation itself, which are counted.
type crew struct {
	sync.WaitGroup
	size *atomic.Int64 // of all crews
}

func (w *world) newCrew() *crew { return &crew{size: &w.crews} }

// Go runs a function as one of the crew.
func (c *crew) Go(f func()) {
	c.size.Add(1)
	c.WaitGroup.Go(func() {
		defer c.size.Add(-1)
		f()
	})
}

// connections are those of a sidecar to all places.
func (w *world) connections(i int) (n int) {
	for _, to := range w.places {
		n += w.network.count(place(i), to)
	}
	return n
}

// run lets the load come and the faults happen, and then all be calm.
func (w *world) run() {
	running := w.newCrew()
	running.Go(func() {
		elapse(warm - 100*time.Millisecond)
		w.before = w.usage()
	})
	for i := range w.s.faults {
		running.Go(func() { w.hurt(&w.s.faults[i]) })
	}
	running.Go(w.changeRules)
	ctx, stop := context.WithCancel(context.Background())
	for i := range w.s.loads {
		running.Go(func() { w.load(ctx, uint64(i), &w.s.loads[i]) })
	}
	elapse(w.s.lasts + calmFor - w.since())
	stop()
	running.Wait()
	w.isCalm()
}

// end closes everything. The bubble then waits for the goroutines to end, or reports those that do not.
func (w *world) end() {
	var closing sync.WaitGroup
	for _, s := range w.all {
		if s == nil {
			continue
		}
		closing.Go(func() {
			if err := s.Close(); err != nil {
				w.Errorf("close a sidecar: %v", err)
			}
		})
	}
	closing.Wait()
	w.remains.Wait()
	elapse(5 * time.Second) // the client library looks every second whether it was closed
	for _, s := range append(w.servers, w.sentinels...) {
		s.stop()
	}
	elapse(time.Second)
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	if w.network.open != 0 {
		w.violation(nil, "%d ends of connections are open after all sidecars were closed", w.network.open)
	}
}

// changeRules brings other limits into use, in all sidecars at once.
func (w *world) changeRules() {
	r := w.s.stream(ofScenario + 50)
	for n := range w.loads[1:] {
		elapse(time.Duration((2 + 3*r.Float64()) * float64(time.Second)))
		w.trace.add("rules change, version %d", n+1)
		w.mu.Lock()
		w.version = n + 1
		all := slices.Clone(w.all)
		w.mu.Unlock()
		for _, s := range all {
			if s != nil {
				s.UseRules(w.loads[n+1])
			}
		}
	}
}
