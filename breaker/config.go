package breaker

import (
	"math/rand/v2"
	"time"
)

// Defaults of Config.
const (
	defaultConsecutive = 5
	defaultRatio       = 0.5
	defaultMinCalls    = 20
	defaultWindow      = time.Second
	defaultOpen        = time.Second
	defaultMaxOpen     = 1500 * time.Millisecond
	defaultJitter      = 0.2
	defaultProbes      = 3
	defaultRamp        = time.Second
)

const (
	buckets    = 10         // parts of the window; it moves on by one part at a time
	growTenths = 12         // each open period is this many tenths of the one before, until the longest
	leastPart  = 4          // Nudge does not end an open period before Open / leastPart
	rampFrom   = 1.0 / 10.0 // share of calls that pass when the ramp begins
	flapWithin = 10         // times Open; for so long after it closed a breaker flaps
)

// Config sets up a Breaker. The zero value works.
type Config struct {
	Disabled bool // every call passes and nothing is counted

	Consecutive uint32        // failures in a row that open it, however far apart; default 5
	Ratio       float64       // part of the calls in a window that opens it by failing; default 0.5, at most 1
	MinCalls    uint32        // least calls in a window for Ratio to count; default 20
	Window      time.Duration // time over which Ratio is counted; moves on in tenths; default 1 s
	Open        time.Duration // time from opening to the first probe; default 1 s
	MaxOpen     time.Duration // longest open period after probes that failed, jitter included; default 1.5 s
	Jitter      float64       // largest random change of an open period, as a part of it; default 0.2, at most 0.5, negative: none
	Probes      uint32        // calls at once while half-open, and successes that close it; default 3
	Ramp        time.Duration // time after closing in which the share of calls that pass grows from 10 % to all; default 1 s, negative: none

	Random func() float64 // at least 0 and less than 1; nil: math/rand

	// OnChange is called for each change, in order, by one of the callers of Do after its call. Other callers do not wait for it.
	OnChange func(from, to State, reason string)
}

func (c Config) withDefaults() Config {
	c.Consecutive = orDefault(c.Consecutive, defaultConsecutive)
	c.MinCalls = orDefault(c.MinCalls, defaultMinCalls)
	c.Probes = orDefault(c.Probes, defaultProbes)
	c.Window = orDefault(c.Window, defaultWindow)
	c.Open = orDefault(c.Open, defaultOpen)
	c.MaxOpen = orDefault(c.MaxOpen, defaultMaxOpen)
	c.Ratio = min(orDefault(c.Ratio, defaultRatio), 1)
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Ramp == 0 {
		c.Ramp = defaultRamp
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = defaultJitter
	case c.Jitter < 0:
		c.Jitter = 0
	}
	c.Jitter = min(c.Jitter, 0.5)
	return c
}

// longest is the longest open period before jitter; with jitter it may reach MaxOpen. A period cut off at MaxOpen after jitter
// would end at the same time in many sidecars.
func (c Config) longest() time.Duration {
	return max(time.Duration(float64(c.MaxOpen)/(1+c.Jitter)), c.Open)
}

// orDefault is n, or otherwise if n is not positive.
func orDefault[T uint32 | float64 | time.Duration](n, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return n
}
