package simulation

import "time"

// balance is the most that a bucket may hold.
type balance struct {
	domain *domain
	at     time.Duration
	level  float64
}

// take charges a bucket at an instant.
func (b *balance) take(at time.Duration, n float64) {
	if at > b.at {
		b.level += float64(b.domain.count) * (at - b.at).Seconds() / b.domain.window.Seconds()
		b.at = at
	}
	b.level = min(b.level, float64(b.domain.burst)) - n
	b.level = max(b.level, 1-float64(b.domain.count)) // the least that a whole number of tokens can owe
}

// judgePostPaid: a request of cost 0 passes only while enough is left, and what is paid is charged in full.
func (w *world) judgePostPaid(calls []*call) {
	for life := range w.lives {
		if w.lives[life].split {
			continue
		}
		var some []*call
		for _, c := range calls {
			if c.life == life && !c.killed {
				some = append(some, c)
			}
		}
		w.judgeBills(w.lives[life].began, some)
	}
}

// judgeBills is judgePostPaid in one life, for calls in the order of their begin.
func (w *world) judgeBills(began time.Duration, calls []*call) {
	for _, c := range calls {
		if c.bill() || c.over || c.degraded != "" || c.lost {
			continue
		}
		d := c.domain
		b := balance{domain: d, at: began, level: float64(d.burst)}
		for _, other := range calls {
			if n := other.owes(); n > 0 && other.ended <= c.began && other.degraded == "" && !other.lost ||
				n < 0 && other.began <= c.ended {
				b.take(other.began, float64(n))
			}
		}
		b.take(c.ended, 0)
		if b.level < float64(max(1, d.reserve))-0.001 {
			w.violation(c, "admitted, though at most %.3f was left after what had been paid", b.level)
		}
	}
}

// owes is the least that a call of a post-paid rule takes; less than 0: the most that it gives back.
func (c *call) owes() int64 {
	switch {
	case c.bill():
		return c.cost - c.domain.reserve
	case c.over:
		return 0
	}
	return c.domain.reserve
}
