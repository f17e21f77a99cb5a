package engine

import (
	"math/bits"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// debt is what the store is owed for one counter: what was admitted without it in the last window, counted as a sliding
// window counts, or in the current one of a fixed window. Older ones the store would have given back by now.
type debt struct {
	limit limit.Limit
	at    int64  // start of the window, in µs since the epoch
	used  int64  // tokens of this window
	prev  int64  // tokens of the one before
	class uint32 // of its charges
}

// window is the time after which the store would have forgotten a charge, in µs: for a bucket, that in which it fills.
func (d *debt) window() int64 {
	if !d.limit.Algorithm.Fills() || d.limit.Count < 1 {
		return max(d.limit.Window.Microseconds(), 1)
	}
	return max(fillTime(&d.limit).Microseconds(), 1)
}

// fillTime is the time in which an empty bucket fills. One that earns nothing never does.
func fillTime(l *limit.Limit) time.Duration {
	if l.Count < 1 {
		return limit.MaxFill
	}
	fill := float64(l.Window) * (float64(l.Burst) / float64(l.Count))
	return time.Duration(min(fill, float64(limit.MaxFill)))
}

// advance moves to the window of now. A clock that is set back goes on in the window that it was in.
func (d *debt) advance(now int64) {
	window := d.window()
	start := now - now%window
	if c := d.limit.Calendar; c != nil {
		var known bool
		start, _, known = c.Window(now)
		if !known {
			start = now // the calendar is older than its windows, so what was owed is of a window that is over
		}
	}
	if d.at >= start {
		return
	}
	d.prev, d.used = d.used, 0
	if d.at < start-window || d.limit.Algorithm.EndsAtOnce() {
		d.prev = 0
	}
	d.at = start
}

// add counts n tokens more, or fewer if n is negative, but not fewer than none.
func (d *debt) add(n int64) {
	d.used += n
	if d.used < 0 {
		d.prev, d.used = max(d.prev+d.used, 0), 0
	}
}

// tokens is how much is owed, rounded up, after advance to now.
func (d *debt) tokens(now int64) int64 {
	window := d.window()
	rest := min(max(d.at+window-now, 0), window)
	high, low := bits.Mul64(uint64(d.prev), uint64(rest))
	weight, part := bits.Div64(high, low, uint64(window))
	if part > 0 {
		weight++
	}
	return d.used + int64(weight)
}
