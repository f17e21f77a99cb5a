// Package breaker keeps calls away from a dependency that is down: closed, open, half-open, on sony/gobreaker.
//
// gobreaker counts, trips and probes. Around it is a gate of ours for what it does not have: open periods with jitter that
// grow while the dependency stays away, and a ramp after it came back, so that many sidecars do not return at once.
package breaker

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Result is what a call tells about the dependency.
type Result uint8

// The results. The zero value is Neutral.
const (
	Neutral Result = iota // nothing: the caller hung up, or the call itself was wrong; a probe's place is free again
	Success               // it answered
	Failure               // it cannot be reached, or cannot do its work
	Lapse                 // it did not answer, as may happen to all calls under way at one instant: a failure, unless it is over at once
)

// State is what a breaker does with calls.
type State uint8

// The states, in the order of how much they keep away.
const (
	Closed   State = iota // calls pass, at first only a growing share of them
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

// The reasons of a change. They are fit for labels: few and fixed.
const (
	ReasonConsecutive = "consecutive failures" // closed to open
	ReasonRatio       = "failure ratio"        // closed to open
	ReasonProbe       = "a probe failed"       // half-open to open
	ReasonWaited      = "waited long enough"   // open to half-open
	ReasonRecovered   = "probes succeeded"     // half-open to closed
)

// Why a call was not made.
var (
	ErrOpen    = errors.New("the breaker is open")
	ErrProbing = errors.New("the breaker is half-open and probes are under way")
	ErrRamp    = errors.New("the breaker closed a moment ago and lets a growing share pass")
)

// Stats is what a breaker tells about itself.
type Stats struct {
	State      State
	Since      time.Time // of the last change; zero before the first
	Reason     string    // of the last change; empty before the first
	Opened     int64     // changes to open
	HalfOpened int64     // changes to half-open
	Closed     int64     // changes to closed

	RejectedOpen    int64 // calls not made because it was open
	RejectedProbing int64 // calls not made because enough probes were under way
	RejectedRamp    int64 // calls not made because it had closed a moment ago
}

// Rejected is how many calls were not made.
func (s Stats) Rejected() int64 { return s.RejectedOpen + s.RejectedProbing + s.RejectedRamp }

// Breaker guards one dependency. It is safe for concurrent use. Its time is time.Now, because gobreaker reads no other clock.
type Breaker struct {
	cfg     Config
	circuit *gobreaker.CircuitBreaker[struct{}] // nil: disabled
	random  func() float64                      // 0 <= x < 1

	calm    atomic.Bool // closed, and the ramp is over: the gate has nothing to say
	probing atomic.Int64
	refused atomic.Int64 // while open
	ramped  atomic.Int64
	inARow  uint32     // failures since the last success; guarded by gobreaker's lock, as are the next three
	began   time.Time  // when the first of them ended
	lapse   bool       // the last of them was one
	tripped string     // why the next change to open happens
	mu      sync.Mutex // guards all below; taken inside gobreaker's lock, never around it
	state   State
	since   time.Time
	reason  string
	changes [states]int64 // by the new state
	openFor time.Duration // before jitter, of the next open period
	until   time.Time     // end of the open period
	nudged  bool          // this open period was cut short
	share   float64       // what the ramp owes to the calls so far, below 1
	news    news
}

// New returns a closed breaker. The zero Config works.
func New(cfg Config) *Breaker {
	cfg = cfg.withDefaults()
	b := &Breaker{cfg: cfg, random: rand.Float64, openFor: cfg.Open}
	b.calm.Store(true)
	if cfg.Disabled {
		return b
	}
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  cfg.Probes,
		Interval:     cfg.Window,
		BucketPeriod: cfg.Window / buckets,
		// The gate keeps calls away for longer than this, so gobreaker is ready for the first call that passes.
		Timeout:       cfg.Open / 5,
		ReadyToTrip:   b.readyToTrip,
		OnStateChange: b.changed,
		IsSuccessful:  b.succeeded,
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
	})
	return b
}

// What gobreaker gets as the error of a call.
var (
	errNeutral = errors.New("neutral")
	errFailure = errors.New("failure")
	errLapse   = errors.New("lapse")
)

// err is the result in gobreaker's words.
func (r Result) err() error {
	switch r {
	case Success:
		return nil
	case Failure:
		return errFailure
	case Lapse:
		return errLapse
	}
	return errNeutral
}

// Do makes the call, unless the breaker keeps it away: then it returns ErrOpen, ErrProbing or ErrRamp at once. The call has to
// end by a deadline of its own, because a probe that hangs keeps its place. A panic passes through and is a failure.
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

// admit is the gate: it holds calls back until the open period has passed, and some of them while the ramp lasts.
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
	// A share adds up to whole calls, evenly spread; a draw of lots could keep a lone caller out for the whole ramp.
	b.share += rampFrom + (1-rampFrom)*float64(passed)/float64(b.cfg.Ramp)
	if b.share < 1 {
		b.ramped.Add(1)
		return ErrRamp
	}
	b.share--
	return nil
}

// readyToTrip decides after each failure while closed.
func (b *Breaker) readyToTrip(c gobreaker.Counts) bool {
	known := c.TotalSuccesses + c.TotalFailures
	switch {
	case b.inARow >= b.cfg.Consecutive && (!b.lapse || time.Since(b.began) >= b.cfg.Lasting):
		b.tripped = ReasonConsecutive
	case known >= b.cfg.MinCalls && float64(c.TotalFailures) >= b.cfg.Ratio*float64(known):
		b.tripped = ReasonRatio
	default:
		return false
	}
	return true
}

// succeeded is asked once for each call that counts. gobreaker forgets failures in a row with its window; a dependency that
// is asked once a second and never answers is down all the same, so they are counted here.
func (b *Breaker) succeeded(err error) bool {
	if err == nil {
		b.inARow = 0
		return true
	}
	if b.inARow == 0 {
		b.began = time.Now()
	}
	b.inARow++
	b.lapse = errors.Is(err, errLapse)
	return false
}

// changed follows gobreaker, which holds its lock meanwhile.
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

// jittered spreads a time by the configured part to both sides.
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

// Nudge tells that the dependency showed a sign of life, such as a connection after none could be made. An open breaker then
// probes within a tenth of its open period, once per period and never in the first quarter of one.
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

// State is what the breaker does with the next call: after an open period that is a probe, so it is half-open then, though
// only that call will count as the change.
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

// Stats is what the breaker has done so far.
func (b *Breaker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{
		State: b.stateLocked(), Since: b.since, Reason: b.reason,
		Opened: b.changes[Open], HalfOpened: b.changes[HalfOpen], Closed: b.changes[Closed],
		RejectedOpen: b.refused.Load(), RejectedProbing: b.probing.Load(), RejectedRamp: b.ramped.Load(),
	}
}
