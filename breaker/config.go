package breaker

import "time"

// Defaults of Config.
const (
	defaultConsecutive = 5
	defaultLasting     = 20 * time.Millisecond
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
	buckets    = 10         // parts in which the window moves on
	growTenths = 12         // each open period is this many tenths of the one before, until the longest
	leastPart  = 4          // an open period lasts at least this part of Open, whatever signs of life there are
	rampFrom   = 1.0 / 10.0 // share of calls that pass when the ramp begins
)

// Config sets up a Breaker. The zero value works.
type Config struct {
	Disabled bool // every call passes and nothing is counted

	Consecutive uint32        // failures in a row that open it, however far apart; default 5
	Lasting     time.Duration // how long they have to go on if the last is a lapse; default 20 ms
	Ratio       float64       // part of the calls in a window that opens it by failing; default 0.5, at most 1
	MinCalls    uint32        // calls that a window needs for Ratio to count; default 20
	Window      time.Duration // rolls on in tenths; default 1 s
	Open        time.Duration // how long it stays open before it probes; default 1 s
	MaxOpen     time.Duration // what Open grows to while probes fail, jitter included; default 1.5 s
	Jitter      float64       // part by which an open period is longer or shorter, by chance; default 0.2, at most 0.5, negative: none
	Probes      uint32        // calls at once while half-open, and successes that close it; default 3
	Ramp        time.Duration // after closing, the share of calls that pass grows from 10 % to all in this time; default 1 s, negative: none

	// OnChange is called for each change, in order, by one of the callers of Do after its call. Others do not wait for it.
	OnChange func(from, to State, reason string)
}

func (c Config) withDefaults() Config {
	c.Consecutive = orDefault(c.Consecutive, defaultConsecutive)
	c.Lasting = orDefault(c.Lasting, defaultLasting)
	c.MinCalls = orDefault(c.MinCalls, defaultMinCalls)
	c.Probes = orDefault(c.Probes, defaultProbes)
	c.Window = orDefault(c.Window, defaultWindow)
	c.Open = orDefault(c.Open, defaultOpen)
	c.MaxOpen = orDefault(c.MaxOpen, defaultMaxOpen)
	c.Ratio = min(orDefault(c.Ratio, defaultRatio), 1)
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

// longest is the longest open period before jitter: with jitter it may reach MaxOpen. Cutting it off at MaxOpen instead would
// let those that wait longest come back together.
func (c Config) longest() time.Duration {
	return max(time.Duration(float64(c.MaxOpen)/(1+c.Jitter)), c.Open)
}

// orDefault is n, or the default when n says nothing.
func orDefault[T uint32 | float64 | time.Duration](n, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return n
}
