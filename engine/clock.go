package engine

import (
	"sync/atomic"
	"time"
)

// clockSlack is how far the store's clock may seem to fall back before that is believed: a decision that waits for a
// processor seems older than it is.
const clockSlack = 250 * time.Millisecond

// Clock is the store's clock as last known, for what is counted while the store is away: its windows then end when
// those of the store do. Until a decision of the store was seen it is the machine's. Steps of the machine's wall clock
// do not count. It is safe for concurrent use.
type Clock struct {
	now   func() time.Time
	start time.Time
	ahead atomic.Int64 // by which the store's clock is ahead of the machine's, in ns
}

// NewClock returns a Clock over the machine's.
func NewClock(now func() time.Time) *Clock { return &Clock{now: now, start: now()} }

// Now is the present time at the store.
func (c *Clock) Now() time.Time { return c.machine().Add(time.Duration(c.ahead.Load())) }

// machine is the time here, without the steps of the wall clock.
func (c *Clock) machine() time.Time { return c.start.Add(c.now().Sub(c.start)) }

// learn learns from a decision that was made at that instant, in µs on the store's clock. It was on its way for a
// while, so of two the later time is right, unless the store's clock was set back.
func (c *Clock) learn(at int64) {
	ahead, known := time.UnixMicro(at).Sub(c.machine()), time.Duration(c.ahead.Load())
	if ahead > known+time.Millisecond || ahead < known-clockSlack {
		c.ahead.Store(int64(ahead))
	}
}
