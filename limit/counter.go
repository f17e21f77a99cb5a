package limit

// Counter is what a store keeps for one key, as charge.lua keeps it in Redis. The zero value was never charged. It is not
// safe for concurrent use.
type Counter struct {
	first, second     int64 // bucket: full at the instant first, and second units later; windows: what this and the last one count
	lent, older, ends int64 // bucket: on lease until ends, and until an epoch before
	expires           int64 // the last ms of its life; 0: it holds nothing
}

// Expires is the instant, in µs since the epoch, from which on it is as good as one that was never charged; 0: it is so now.
func (c *Counter) Expires() int64 { return 0 }

// Gone reports whether nothing in it matters at an instant (µs since the epoch) and later.
func (c *Counter) Gone(now int64) bool { return c.Expires() <= now }

// Size is about how many bytes it takes.
func (c *Counter) Size() int { return 0 }
