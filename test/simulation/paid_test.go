package simulation

import (
	"cmp"
	"slices"
	"time"
)

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
	b.level = max(b.level, -float64(b.domain.count))
}

// judgePostPaid: a request of cost 0 passes only while something is left, and what is paid is charged in full.
func (w *world) judgePostPaid(calls []*call) {
	d := calls[0].domain
	for life := range w.lives {
		if w.lives[life].split || d.reserve > 0 {
			continue
		}
		w.judgeBills(life, calls)
	}
}

// judgeBills is judgePostPaid in one life. A bill counts from its begin on, when it has ended before a request comes.
func (w *world) judgeBills(life int, calls []*call) {
	var bills []*call
	for _, c := range calls {
		if c.bill() && c.life == life && !c.lost && !c.killed && c.degraded == "" {
			bills = append(bills, c)
		}
	}
	slices.SortFunc(bills, func(a, b *call) int { return cmp.Compare(a.ended, b.ended) })
	for _, c := range calls {
		if c.cost != 0 || c.over || c.degraded != "" || c.killed || c.life != life || c.lost {
			continue
		}
		b := balance{domain: calls[0].domain, at: w.lives[life].began, level: float64(calls[0].domain.burst)}
		var before []*call
		for _, bill := range bills {
			if bill.ended <= c.began {
				before = append(before, bill)
			}
		}
		slices.SortFunc(before, func(a, b *call) int { return cmp.Compare(a.began, b.began) })
		for _, bill := range before {
			b.take(bill.began, float64(bill.cost))
		}
		b.take(c.ended, 0)
		if b.level < 0.999 {
			w.violation(c, "admitted, though at most %.3f was left after what had been paid", b.level)
		}
	}
}
