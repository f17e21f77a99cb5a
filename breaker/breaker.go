// Package breaker stops calls to a server that is down: gobreaker as it is, with what a call shows about the server
// in plain words.
package breaker

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Outcome is what the end of a call shows about the server.
type Outcome uint8

// The outcomes. The zero value is Neither.
const (
	Neither Outcome = iota // nothing: the call itself was wrong. It is not counted, and a probe's place is free again
	Success                // the server answered
	Failure                // the server cannot be reached, or replies that it cannot work
)

// State is what a breaker does with calls.
type State uint8

// The states, from the one that stops the fewest calls to the one that stops all.
const (
	Closed   = State(gobreaker.StateClosed)   // calls pass
	HalfOpen = State(gobreaker.StateHalfOpen) // a few calls pass as probes
	Open     = State(gobreaker.StateOpen)     // no call passes
)

// String is the name of the state.
func (s State) String() string { return [...]string{"closed", "half-open", "open"}[s] }

// ErrOpen is the error of a call that was not made: the breaker is open, or enough probes are under way.
var ErrOpen = errors.New("the breaker is open")

// Config sets up a Breaker. The zero value works.
type Config struct {
	// it opens after so many in a row; default 3. Two that were under way at once are enough
	Failures uint32
	Open     time.Duration        // how long it stays open; default 500 ms
	Probes   uint32               // calls that pass then; it closes when all of them succeed; default 1
	OnChange func(from, to State) // called after each change, one at a time and outside of any lock; nil: not
}

// Stats is the state of a breaker and its counts since it was made.
type Stats struct {
	State      State     `metric:"breaker_state" help:"State of the breaker of a shard: 0 closed, 1 half-open, 2 open."`
	Since      time.Time // of the last change; zero before the first
	Opened     int64     `metric:"breaker_transitions_total" labels:"to=open" help:"Changes of a breaker by new state."`
	HalfOpened int64     `metric:"breaker_transitions_total" labels:"to=half_open"`
	Closed     int64     `metric:"breaker_transitions_total" labels:"to=closed"`
	Rejected   int64     `metric:"breaker_rejected_total" help:"Calls that a breaker kept from its shard."`
}

// Breaker guards one server. It is safe for concurrent use.
type Breaker struct {
	circuit  *gobreaker.TwoStepCircuitBreaker[struct{}]
	onChange func(from, to State)
	rejected atomic.Int64
	failures atomic.Int64  // of all calls so far
	together atomic.Bool   // the last failure was under way at once with another one
	changes  chan [2]State // that onChange was not called for yet; a change that finds it full is not reported
	calling  sync.Mutex    // held while onChange runs
	mu       sync.Mutex    // guards stats; taken inside gobreaker's lock, never around it
	stats    Stats
}

// New returns a closed breaker.
func New(c Config) *Breaker {
	b := &Breaker{onChange: c.OnChange, changes: make(chan [2]State, 100)}
	if b.onChange == nil {
		b.onChange = func(State, State) {}
	}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: cmp.Or(c.Probes, 1),
		Timeout:     max(cmp.Or(c.Open, 500*time.Millisecond), time.Millisecond),
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.ConsecutiveFailures >= cmp.Or(c.Failures, 3) || n.ConsecutiveFailures >= 2 && b.together.Load()
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, shown[Neither]) },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.changed(State(from), State(to)) },
	})
	return b
}

var shown = [...]error{Neither: errors.New("neither"), Success: nil, Failure: errors.New("failure")}

// Allow returns ErrOpen, or a function that must be called once with what the call has shown.
func (b *Breaker) Allow() (done func(Outcome), err error) {
	end, err := b.circuit.Allow()
	b.report()
	if err != nil {
		b.rejected.Add(1)
		return nil, ErrOpen
	}
	before := b.failures.Load()
	return func(o Outcome) {
		if o == Failure {
			b.together.Store(b.failures.Add(1) > before+1)
		}
		end(shown[o])
		b.report()
	}, nil
}

// State is what the breaker does with the next call.
func (b *Breaker) State() State {
	defer b.report() // the end of an open period is noticed here
	return State(b.circuit.State())
}

// Stops reports whether no call passes now. If so it counts one as not made.
func (b *Breaker) Stops() bool {
	if b.State() != Open {
		return false
	}
	b.rejected.Add(1)
	return true
}

// Stats returns the state and the counts so far.
func (b *Breaker) Stats() Stats {
	state := b.State()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.State, b.stats.Rejected = state, b.rejected.Load()
	return b.stats
}

// changed counts a change. gobreaker holds its lock meanwhile, so onChange is called later.
func (b *Breaker) changed(from, to State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Since = time.Now()
	*[...]*int64{Closed: &b.stats.Closed, HalfOpen: &b.stats.HalfOpened, Open: &b.stats.Opened}[to]++
	select {
	case b.changes <- [2]State{from, to}:
	default:
	}
}

// report calls onChange for the changes so far, unless another goroutine does so.
func (b *Breaker) report() {
	for len(b.changes) > 0 && b.calling.TryLock() { // again, for one that came before the unlock
		for len(b.changes) > 0 {
			next := <-b.changes
			b.onChange(next[0], next[1])
		}
		b.calling.Unlock()
	}
}
