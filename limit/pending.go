package limit

import "sync"

// Pending is a decision that is still to come: the store was asked, and its caller could not wait for the reply. The zero value works.
// It is safe for concurrent use.
type Pending struct {
	mu       sync.Mutex // guards all below
	then     func(Decision)
	decision Decision
	came     bool
}

// Then has f called once with the decision, when it comes or at once if it is there. One that never comes is Undecided, and Unknown if
// the store may have charged all the same. f must not block for long. Then is to be called at most once.
func (p *Pending) Then(f func(Decision)) {
	p.mu.Lock()
	p.then = f
	came, decision := p.came, p.decision
	p.mu.Unlock()
	if came {
		f(decision)
	}
}

// Resolve brings the decision. It is to be called once.
func (p *Pending) Resolve(d Decision) {
	p.mu.Lock()
	p.decision, p.came = d, true
	then := p.then
	p.mu.Unlock()
	if then != nil {
		then(d)
	}
}
