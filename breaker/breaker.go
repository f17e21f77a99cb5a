// Package breaker stops calls to a server that is down. It is closed, open or half-open, and is built on sony/gobreaker.
//
// gobreaker counts, trips and probes. The gate around it adds what gobreaker does not have: open periods with jitter that grow
// while the server stays down, and a ramp after the server is back, so that many sidecars do not return at once.
package breaker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Result is what the end of a call shows about the server.
type Result uint8

// The results. The zero value is Neutral.
const (
	// Neutral shows nothing: the caller hung up, or the call itself was wrong. It is not counted; a probe's slot is free again.
	Neutral Result = iota
	// Success: the server answered.
	Success
	// Failure: the server cannot be reached, or replies that it cannot work. It counts in a row and for the ratio.
	Failure
	// Late: the call ran out of patience while the server answered other calls. It counts for the ratio only: a row of failures
	// neither grows nor ends by it. As a probe it is a failure.
	Late
)

// State is what a breaker does with calls.
type State uint8

// The states, from the one that stops the fewest calls to the one that stops all.
const (
	Closed   State = iota // calls pass; in the first second after a recovery only a growing share of them
	HalfOpen              // a few calls pass as probes
	Open                  // no call passes
	states
)

var stateNames = [states]string{"closed", "half-open", "open"}

// String is the name of the state.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return "unknown"
}

// The reasons of a change. They are few and fixed, so they can be labels of a metric.
const (
	ReasonConsecutive = "consecutive failures" // closed to open
	ReasonRatio       = "failure ratio"        // closed to open
	ReasonProbe       = "a probe failed"       // half-open to open
	ReasonWaited      = "waited long enough"   // open to half-open
	ReasonRecovered   = "probes succeeded"     // half-open to closed
)

// The errors of calls that were not made.
var (
	ErrOpen    = errors.New("the breaker is open")
	ErrProbing = errors.New("the breaker is half-open and probes are under way")
	ErrRamp    = errors.New("the breaker closed a moment ago and lets a growing share pass")
)

// Stats is the state of a breaker and its counts since it was made.
type Stats struct {
	State      State
	Since      time.Time // time of the last change; zero before the first
	Reason     string    // reason of the last change; empty before the first
	Opened     int64     // changes to open
	HalfOpened int64     // changes to half-open
	Closed     int64     // changes to closed

	RejectedOpen    int64 // calls not made because the breaker was open
	RejectedProbing int64 // calls not made because enough probes were under way
	RejectedRamp    int64 // calls not made because the breaker had closed a moment ago
}

// Rejected is how many calls were not made.
func (s Stats) Rejected() int64 { return s.RejectedOpen + s.RejectedProbing + s.RejectedRamp }

// Breaker guards one server. It is safe for concurrent use. Its clock is time.Now, because gobreaker reads no other clock.
type Breaker struct {
	cfg     Config
	circuit *gobreaker.CircuitBreaker[struct{}] // nil: disabled
	random  func() float64                      // 0 <= x < 1

	calm    atomic.Bool  // closed, and the ramp is over: the gate lets every call pass
	probing atomic.Int64 // calls rejected while probes were under way
	refused atomic.Int64 // calls rejected while open
	ramped  atomic.Int64 // calls rejected by the ramp

	// Guarded by gobreaker's lock.
	inARow  uint32 // failures since the last success
	late    bool   // the latest call was
	tripped string // reason of the next change from closed to open

	mu      sync.Mutex // guards all below; taken inside gobreaker's lock, never around it
	state   State
	since   time.Time
	reason  string
	changes [states]int64 // by the new state
	openFor time.Duration // the next open period, before jitter
	until   time.Time     // end of the open period
	nudged  bool          // Nudge was called in this open period
	share   float64       // the ramp's share of the calls so far that is not used yet; below 1
	news    news
}

// New returns a closed breaker. The zero Config works.
func New(cfg Config) *Breaker {
	cfg = cfg.withDefaults()
	b := &Breaker{cfg: cfg, random: cfg.Random, openFor: cfg.Open}
	b.calm.Store(true)
	if cfg.Disabled {
		return b
	}
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  cfg.Probes,
		Interval:     cfg.Window,
		BucketPeriod: cfg.Window / buckets,
		// The gate stops calls for longer than this, so gobreaker lets the first call after the gate pass as a probe.
		Timeout:       cfg.Open / 5,
		ReadyToTrip:   b.readyToTrip,
		OnStateChange: b.changed,
		IsSuccessful:  b.succeeded,
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
	})
	return b
}

// The errors that stand for results in calls of gobreaker.
var (
	errNeutral = errors.New("neutral")
	errFailure = errors.New("failure")
	errLate    = errors.New("late")
)

// err is the error that gobreaker gets for the result.
func (r Result) err() error {
	switch r {
	case Success:
		return nil
	case Failure:
		return errFailure
	case Late:
		return errLate
	}
	return errNeutral
}

// Do makes the call, or returns ErrOpen, ErrProbing or ErrRamp at once. The call needs a deadline of its own, because a probe
// that hangs keeps its slot. A panic passes through and counts as a failure.
func (b *Breaker) Do(call func() Result) error {
	if b.circuit == nil {
		call()
		return nil
	}
	defer b.tell()
	if !b.calm.Load() {
		err := b.admit()
		if err != nil {
			return err
		}
	}
	_, err := b.circuit.Execute(func() (struct{}, error) { return struct{}{}, call().err() })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gobreaker.ErrOpenState):
		b.refused.Add(1)
		return ErrOpen
	case errors.Is(err, gobreaker.ErrTooManyRequests):
		b.probing.Add(1)
		return ErrProbing
	}
	return nil
}

// admit is the gate: it rejects all calls until the open period is over, and a part of the calls during the ramp.
func (b *Breaker) admit() error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != Closed {
		if now.Before(b.until) {
			b.refused.Add(1)
			return ErrOpen
		}
		return nil
	}
	passed := now.Sub(b.since)
	if passed >= b.cfg.Ramp {
		b.calm.Store(true)
		return nil
	}
	// The share adds up to whole calls, evenly spread. A random choice could reject every call of a lone caller.
	b.share += rampFrom + (1-rampFrom)*float64(passed)/float64(b.cfg.Ramp)
	if b.share < 1 {
		b.ramped.Add(1)
		return ErrRamp
	}
	b.share--
	return nil
}

// readyToTrip decides whether a closed breaker opens. gobreaker calls it after each call that did not succeed.
func (b *Breaker) readyToTrip(c gobreaker.Counts) bool {
	known := c.TotalSuccesses + c.TotalFailures
	switch {
	case b.inARow >= b.cfg.Consecutive && !b.late:
		b.tripped = ReasonConsecutive
	case known >= b.cfg.MinCalls && float64(c.TotalFailures) >= b.cfg.Ratio*float64(known):
		b.tripped = ReasonRatio
	default:
		return false
	}
	return true
}

// succeeded counts failures in a row; gobreaker calls it once for each call that counts. gobreaker's own count ends with its
// window, but a server that is asked once a second and never answers is down as well.
func (b *Breaker) succeeded(err error) bool {
	b.late = errors.Is(err, errLate)
	switch {
	case err == nil:
		b.inARow = 0
	case !b.late:
		b.inARow++
	}
	return err == nil
}

// changed copies a change of gobreaker's state. gobreaker holds its lock during the call.
func (b *Breaker) changed(_ string, from, to gobreaker.State) {
	reason := ReasonWaited
	switch {
	case to == gobreaker.StateClosed:
		reason = ReasonRecovered
	case to == gobreaker.StateOpen && from == gobreaker.StateHalfOpen:
		reason = ReasonProbe
	case to == gobreaker.StateOpen:
		reason = b.tripped
	}
	b.move(stateOf(to), reason)
}

func (b *Breaker) move(to State, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news.addLocked(b.cfg.OnChange, change{b.state, to, reason})
	b.calm.Store(false)
	b.state, b.reason, b.since = to, reason, time.Now()
	b.changes[to]++
	switch to {
	case Open:
		b.until = b.since.Add(b.jittered(b.openFor))
		b.nudged = false
		b.openFor = min(b.openFor*growTenths/10, b.cfg.longest())
	case Closed:
		b.openFor, b.share = b.cfg.Open, 0
	}
}

// jittered is a random duration around d, at most the configured part longer or shorter.
func (b *Breaker) jittered(d time.Duration) time.Duration {
	return d + time.Duration(float64(d)*b.cfg.Jitter*(2*b.random()-1))
}

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateClosed:
		return Closed
	case gobreaker.StateHalfOpen:
		return HalfOpen
	}
	return Open
}

// Nudge reports that the server may be back, as after a connection that follows failed ones. An open breaker then probes within
// a tenth of its open period. This works once per period, and never in the first quarter of it.
func (b *Breaker) Nudge() {
	if b.calm.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != Open || b.nudged {
		return
	}
	b.nudged = true
	soon := time.Now()
	if least := b.since.Add(b.cfg.Open / leastPart); soon.Before(least) {
		soon = least
	}
	soon = soon.Add(time.Duration((1 + b.random()) * float64(b.cfg.Open/20)))
	if soon.Before(b.until) {
		b.until = soon
	}
}

// Flaps reports whether the breaker has closed a moment ago: the server, or the way to it, comes and goes.
func (b *Breaker) Flaps() bool {
	if b.circuit == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == Closed && b.changes[Closed] > 0 && time.Since(b.since) < flapWithin*b.cfg.Open
}

// State is what the breaker does with the next call. After an open period the next call is a probe, so the state is half-open;
// Stats counts that change when the probe is made.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateLocked()
}

func (b *Breaker) stateLocked() State {
	if b.state == Open && !time.Now().Before(b.until) {
		return HalfOpen
	}
	return b.state
}

// Stats returns the state and the counts so far.
func (b *Breaker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		State: b.stateLocked(), Since: b.since, Reason: b.reason,
		Opened: b.changes[Open], HalfOpened: b.changes[HalfOpen], Closed: b.changes[Closed],
		RejectedOpen: b.refused.Load(), RejectedProbing: b.probing.Load(), RejectedRamp: b.ramped.Load(),
	}
}
