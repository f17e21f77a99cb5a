// Package limit defines what a limit is, and holds the arithmetic that decides it: Limit, Charge, Decision, the scripts
// that decide charges on a Redis server, and their twins in Go. README.md is the specification.
package limit

import (
	"errors"
	"fmt"
	"time"
)

// Algorithm is how a limit counts. The zero value means none and is refused by Validate.
type Algorithm uint8

// The algorithms.
const (
	TokenBucket Algorithm = iota + 1
	SlidingWindow
	FixedWindow
	SlidingLog
)

var algorithmNames = [...]string{
	TokenBucket: "token_bucket", SlidingWindow: "sliding_window", FixedWindow: "fixed_window",
	SlidingLog: "sliding_log",
}

// String returns the name that rule files use, or "none" for the zero value.
func (a Algorithm) String() string {
	if !a.known() {
		return "none"
	}
	return algorithmNames[a]
}

// Bounds of what Validate accepts. They keep the numbers of the scripts within 2^53, up to where a double is exact.
const (
	MaxCount    = 1_000_000_000_000      // tokens, for Count and Burst
	MaxLogCount = 10_000                 // tokens, for Count of a SlidingLog, which stores each charge
	MinWindow   = time.Millisecond       // windows are multiples of it
	MaxWindow   = 3650 * 24 * time.Hour  //
	MaxFill     = 36500 * 24 * time.Hour // time in which an empty token bucket is full again
	MaxCost     = 1 << 53                // tokens; larger costs are taken for this one
	LongestWait = time.Minute            // of a throttle; a longer MaxWait is taken for this one
	MaxTogether = 128                    // charges of one call of a script
)

// Limit is an algorithm with its numbers. The zero value is refused by Validate.
type Limit struct {
	Name      string        // shown to clients; may be empty
	Algorithm Algorithm     //
	Count     int64         // tokens per Window; 0 refuses everything
	Window    time.Duration // whole milliseconds
	Burst     int64         // capacity of a TokenBucket (Count unless the user sets it); other algorithms ignore it
	Calendar  *Calendar     // of a FixedWindow with windows of a calendar, usually as long as Window; nil: aligned
}

// Capacity is the most that can be left: Burst of a token bucket, Count of the others.
func (l Limit) Capacity() int64 {
	if l.Algorithm.HasBurst() {
		return l.Burst
	}
	return l.Count
}

// Validate reports what makes the limit impossible to count, or nil.
func (l Limit) Validate() error {
	switch {
	case !l.Algorithm.known():
		return errors.New("a limit needs an algorithm")
	case l.Count != min(max(l.Count, 0), MaxCount):
		return fmt.Errorf("count %d must be between 0 and %d", l.Count, int64(MaxCount))
	case l.Window != micros(windowOf(&l)):
		return fmt.Errorf("window %v must be whole milliseconds from %v to %v", l.Window, MinWindow, MaxWindow)
	case l.Calendar != nil && !l.Algorithm.HasCalendar():
		return fmt.Errorf("calendar windows need fixed_window, not %v", l.Algorithm)
	case l.Algorithm.KeepsLog() && l.Count > MaxLogCount:
		return fmt.Errorf("count %d must be at most %d, which is what a sliding_log can hold", l.Count, MaxLogCount)
	case l.Algorithm.HasBurst():
		return l.validateBurst()
	}
	return nil
}

// validateBurst is Validate of what only a token bucket has.
func (l Limit) validateBurst() error {
	switch {
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("burst %d must be between 0 and %d", l.Burst, int64(MaxCount))
	case l.Count > 0 && float64(l.Burst)*float64(l.Window) > float64(l.Count)*float64(MaxFill):
		return fmt.Errorf("burst %d must fill within a hundred years, at %d per %v", l.Burst, l.Count, l.Window)
	}
	return nil
}

// Bounds of leases.
const (
	MaxLease    = 1<<17 - 1              // tokens that a sidecar may have on lease of one counter
	leaseEpoch  = 100 * time.Millisecond // step of the ends of a bucket's leases, which last for two of them
	leastLeased = time.Second            // the shortest window that lends
)

// Leasable reports whether counters of the limit lend tokens. Not those of a log or a calendar, of a window below a
// second, nor a bucket that earns less than a token in an epoch.
func (l Limit) Leasable() bool {
	switch {
	case l.Algorithm.KeepsLog() || !l.Algorithm.known() || l.Calendar != nil:
		return false
	case l.Count <= 0 || l.Window < leastLeased:
		return false
	case l.Algorithm.Fills():
		return l.Count >= int64(l.Window/leaseEpoch)
	}
	return true
}
