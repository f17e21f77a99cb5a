package store

import "sync"

// errands are goroutines that Close waits for.
type errands struct {
	mu      sync.Mutex // keeps one from beginning while stop waits
	stopped bool
	running sync.WaitGroup
}

// begin reports whether an errand may begin. If so, done has to follow.
func (e *errands) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.running.Add(1)
	return true
}

func (e *errands) done() { e.running.Done() }

// run does an errand beside the caller, or before it returns once they have stopped.
func (e *errands) run(errand func()) {
	if !e.begin() {
		errand()
		return
	}
	go func() {
		defer e.done()
		errand()
	}()
}

// stop lets no further errand begin, and waits for those under way.
func (e *errands) stop() {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.running.Wait()
}
