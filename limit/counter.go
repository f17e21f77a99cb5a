package limit

import "time"

// Counter is what a store keeps for one key, as charge.lua keeps it in Redis. The zero value was never charged. It is
// not safe for concurrent use.
type Counter struct {
	first  int64 // bucket: full at this instant, and second units later; window: what it counts; log: the first sum
	second int64 // sliding window: what the window before counts
	lent   int64 // bucket: tokens on lease until ends
	older  int64 // bucket: tokens on lease until an epoch before
	ends   int64
	// expires is the last ms of its life, as of a key in Redis; 0: it holds nothing.
	expires int64
	entries []entry // log, oldest first
}

// entry is what a log took at one instant: the sum of all that was taken up to then, this included.
type entry struct{ at, sum int64 }

const epoch = int64(leaseEpoch / time.Microsecond)

// Expires is the instant, in µs since the epoch, from which on it is as good as one that was never charged; 0: now.
func (c *Counter) Expires() int64 {
	if c.expires == 0 {
		return 0
	}
	return (c.expires + 1) * 1000
}

// Size is about how many bytes it takes.
func (c *Counter) Size() int { return 72 + 16*cap(c.entries) }
