package store

import "sync"

// errands are goroutines that Close waits for.
type errands struct {
	mu      sync.Mutex // guards all below
	stopped bool
	running int
	idle    chan struct{} // closed when none runs; nil: nothing waits for that
}

// begin reports whether an errand may begin. If so, done has to follow.
func (e *errands) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.running++
	return true
}

func (e *errands) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if e.running == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// wait waits for a moment at which none runs. Others may begin meanwhile, which a sync.WaitGroup does not allow.
func (e *errands) wait() {
	e.mu.Lock()
	if e.running == 0 {
		e.mu.Unlock()
		return
	}
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	idle := e.idle
	e.mu.Unlock()
	<-idle
}

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
	e.wait()
}
