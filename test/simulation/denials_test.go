package simulation

import "time"

// judgeDenials: a denial outlives its reason by a second at most. A refusal by Redis is wrong if all that may have been
// charged in the time that the limit looks at, and in the second before, leaves room. A bucket whose rate changes keeps
// the part that is used, and not the number of tokens: nothing is known of it.
func (w *world) judgeDenials(calls []*call) {
	d := calls[0].domain
	if d.special != "" || d.lease || calls[0].user == "r" || d.algorithm == "token_bucket" && len(d.changes) > 0 {
		return
	}
	first := 0
	for _, c := range calls {
		from := c.began - d.memory() - promised.denial
		for calls[first].ended < from-promised.arrives {
			first++
		}
		if !c.over || c.degraded != "" || c.killed || w.stepped(from-promised.clockCaught, c.ended) {
			continue
		}
		sum := int64(0)
		for _, other := range calls[first:] {
			if other.began > c.ended {
				break
			}
			if other != c && other.mayCharge(from) {
				sum += max(other.cost, 0)
			}
		}
		if least := d.least(); sum+max(c.cost, 1) <= least {
			w.violation(c, "refused, though at most %d of %d were charged since %v", sum, least, from)
		}
	}
}

// mayCharge reports whether a call may have charged its counter after an instant.
func (c *call) mayCharge(from time.Duration) bool {
	switch {
	case c.degraded != "" || c.killed || c.lost || c.hung:
		return c.ended+promised.arrives >= from
	case c.over:
		return c.id != "" && c.ended >= from // another server refused it: this one gets its charge back
	}
	return c.ended >= from
}

// memory is how far back a limit looks.
func (d *domain) memory() time.Duration {
	switch d.algorithm {
	case "token_bucket":
		least := d.count
		for _, n := range d.changes {
			least = min(least, n)
		}
		_, burst := d.most()
		return time.Duration(float64(d.window) * float64(burst) / float64(least))
	case "sliding_window":
		return 2 * d.window
	}
	return d.window
}

// least is the least that is admitted at once.
func (d *domain) least() int64 {
	least := min(d.count, d.burst)
	if d.algorithm == "token_bucket" {
		least = d.burst
	}
	for _, n := range d.changes {
		least = min(least, n)
	}
	return least
}
