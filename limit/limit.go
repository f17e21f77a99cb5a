// Package limit says what a limit is, and holds the arithmetic that decides it: Limit, Charge, Decision, and each
// algorithm as a pure Go function with its Lua twin beside it. README.md is the specification.
package limit

import (
	"errors"
	"fmt"
	"time"
)

// Algorithm is how a limit counts. The zero value is none and is refused by Validate.
type Algorithm uint8

// The algorithms. Their numbers are those of the scripts and never change.
const (
	TokenBucket Algorithm = iota + 1
	SlidingWindow
	FixedWindow
	SlidingLog
)

var algorithmNames = [...]string{TokenBucket: "token_bucket", SlidingWindow: "sliding_window", FixedWindow: "fixed_window", SlidingLog: "sliding_log"}

// String returns the name that rule files use, or "none" for the zero value.
func (a Algorithm) String() string {
	if !a.known() {
		return "none"
	}
	return algorithmNames[a]
}

// Bounds of what Validate accepts. They keep every intermediate value of the scripts within 2^53, where a double is exact.
const (
	MaxCount    = 1_000_000_000_000      // tokens, for Count and Burst
	MaxLogCount = 10_000                 // tokens, for Count of a SlidingLog, which stores each charge
	MaxWindow   = 3650 * 24 * time.Hour  // and at least one microsecond
	MaxFill     = 36500 * 24 * time.Hour // time in which an empty token bucket is full again
	MaxCost     = 1 << 53                // tokens; larger costs are taken for this one
	LongestWait = time.Minute            // of a throttle; a longer MaxWait is taken for this one
	MaxTogether = 128                    // charges of one call of the script, and of a request that are charged all or none
)

// Limit is an algorithm with its numbers. The zero value is refused by Validate.
type Limit struct {
	Name      string        // shown to clients; may be empty
	Algorithm Algorithm     //
	Count     int64         // tokens per Window; 0 refuses everything
	Window    time.Duration // whole microseconds
	Burst     int64         // capacity of a TokenBucket (Count unless the user says otherwise); other algorithms ignore it
	Calendar  *Calendar     // of a FixedWindow whose windows are a calendar's, and Window is their usual length; nil: aligned to the epoch
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
	case l.Count < 0 || l.Count > MaxCount:
		return fmt.Errorf("count %d is not between 0 and %d", l.Count, int64(MaxCount))
	case l.Window < time.Microsecond || l.Window > MaxWindow:
		return fmt.Errorf("window %v is not between 1µs and %v", l.Window, MaxWindow)
	case l.Calendar != nil && !l.Algorithm.HasCalendar():
		return fmt.Errorf("calendar windows need fixed_window, not %v", l.Algorithm)
	case l.Algorithm.KeepsLog() && l.Count > MaxLogCount:
		return fmt.Errorf("count %d is above %d, the most a sliding_log can hold", l.Count, MaxLogCount)
	case l.Algorithm.HasBurst():
		return l.validateBurst()
	}
	return nil
}

// validateBurst is Validate of what only a token bucket has.
func (l Limit) validateBurst() error {
	switch {
	case l.Burst < 0 || l.Burst > MaxCount:
		return fmt.Errorf("burst %d is not between 0 and %d", l.Burst, int64(MaxCount))
	case l.Count > 0 && float64(l.Burst)*float64(l.Window) > float64(l.Count)*float64(MaxFill):
		return fmt.Errorf("burst %d would take over a hundred years to fill at %d per %v", l.Burst, l.Count, l.Window)
	}
	return nil
}

// Op is what a charge does. The zero value spends.
type Op uint8

// The operations. Their numbers are those of the scripts and never change.
const (
	Spend  Op = iota // take Cost if it is there, else refuse
	Peek             // answer as Spend would, and take nothing
	Refund           // give Cost back, never beyond full; always allowed
	Debit            // take Cost in full, below zero if need be but never below -Count; always allowed (post-paid)
)

// Mode is what a refusal by a charge means for the request. The zero value enforces.
type Mode uint8

// The modes. Their numbers are those of the scripts and never change.
const (
	Enforced Mode = iota // refuses the request
	Shadow               // counted, never refuses the request
	Quota                // refuses the request only when every Quota charge of the request refuses
)

// Charge is one limit applied to one counter by one request.
type Charge struct {
	Key   string // identity of the counter; charges of one request may share it
	Limit Limit  //
	Cost  int64  // tokens, 0..MaxCost
	Op    Op     //
	Mode  Mode   //
	Each  bool   // charged even when the request is refused, and a refused Spend takes what is left (descriptor trees)
	Lease int64  // tokens that a sidecar may have on lease at once; 0: every charge is made in the store
	Class uint32 // of the limit that it comes from: what one class fills, a store that is full takes from that class
	Share string // the domain whose sidecars share the limit while the store is away; empty: none of them counts it then

	MaxWait    time.Duration // throttle, TokenBucket only: a refused Spend that is due within MaxWait is taken now, and the answer waits; a Peek says whether it could
	Until      int64         // Refund only: the last µs since the epoch, on the store's clock, at which it gives something back; 0: no end
	Penalty    *Penalty      // of a rule that has one; shared by all its charges, never changed
	PenaltyKey string        // identity of the penalty's state, with Penalty
}

// Penalty is a cool-down for a client that is refused again and again: the Threshold-th refusal within Window starts one
// of CoolDown × Multipliers[k], where k is how many the client had within Window; the last multiplier repeats.
type Penalty struct {
	Threshold   int64         // refusals, from 1
	Window      time.Duration // in which they are counted
	CoolDown    time.Duration // before it is multiplied
	Multipliers []int64       // from 1, at least one of them
	DryRun      bool          // counts, and never refuses
}

// Outcome is what one limit said. The zero value is Undecided, so that a forgotten answer never admits.
type Outcome uint8

// The outcomes. Their numbers are those of the scripts and never change.
const (
	Undecided Outcome = iota // the store could not say; Reason tells why
	Allowed
	Refused
)

// Decision is what one limit said about one charge.
type Decision struct {
	Outcome    Outcome
	Remaining  int64         // whole tokens left afterwards, never negative
	Charged    int64         // tokens really taken; negative when given back
	At         int64         // the instant of the decision, in µs since the epoch on the store's clock; 0: the store did not decide
	ResetAfter time.Duration // until full (token bucket, sliding window, log) or until the window ends (fixed window)
	RetryAfter time.Duration // 0 unless refused: the earliest moment this cost could pass if no other request spends; until full if it never can
	Reason     string        // with Undecided: why, as a short label
	Unknown    bool          // with Undecided: the charge may have been made all the same, because only the reply is missing
	Pending    *Pending      // with Unknown: the reply may still come; nil: it will not
	Held       bool          // admitted by tokens on lease, without asking the store
	Cached     bool          // refused by what was known of the counter, without asking the store
	Wait       time.Duration // with Allowed: until the token that was taken is due (throttle)
	Penalized  bool          // refused by a cool-down, or with a penalty's DryRun: would have been
}
