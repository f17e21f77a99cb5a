package limit_test

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// What the walk along the border is made of: limits, costs and instants near the border.

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func (w *borderWalk) chance(p float64) bool { return w.random.Float64() < p }

// near moves a number by at most two.
func (w *borderWalk) near(n int64) int64 { return n + w.random.Int64N(5) - 2 }

// plan makes up the next request: mostly on distinct keys, often with all charges enforced or all with Each. One of the keys is
// often that by which the clock was moved.
func (w *borderWalk) plan(q *borderRequest) {
	keys := w.random.Perm(pick(w.random, borderTame, borderKeys))
	w.tick(pick(w.random, keys[0], keys[0], w.random.IntN(borderKeys)))
	w.fill(q, keys)
}

// fill makes up a request at this instant, on some of the keys.
func (w *borderWalk) fill(q *borderRequest, keys []int) {
	q.now, q.refused = w.now, w.chance(0.05)
	tree, enforced, plain := w.chance(0.3), w.chance(0.5), w.chance(0.8)
	for i := range pick(w.random, 1, 1, 1, 2, 3, 4, borderSizes) {
		k := keys[i]
		if i > 0 && w.chance(0.03) {
			k = q.keys[0]
		}
		if w.chance(0.03) {
			w.limits[k] = w.limit(k)
		}
		c := limit.Charge{Key: borderKey(k), Limit: w.limits[k], Cost: w.cost(k), Each: tree || w.chance(0.1)}
		if w.chance(0.03) {
			c.Limit = w.limit(k) // a rule that changes while the request is on its way
		}
		if !enforced {
			c.Mode = pick(w.random, limit.Enforced, limit.Shadow, limit.Quota, limit.Quota)
		}
		if !plain {
			c.Op = pick(w.random, limit.Spend, limit.Spend, limit.Peek, limit.Debit, limit.Debit, limit.Refund)
		}
		q.keys, q.charges = append(q.keys, k), append(q.charges, c)
	}
}

// limit makes up a limit that Validate accepts, for most keys often one whose products are near the border. Fixed windows have even microseconds:
// odd ones can begin where another one is marked (see fixed_window.lua).
func (w *borderWalk) limit(k int) limit.Limit {
	l := w.anyLimit(k)
	if l.Algorithm == limit.FixedWindow {
		l.Window = max(l.Window.Truncate(2*us), 2*us)
	}
	return l
}

func (w *borderWalk) anyLimit(k int) limit.Limit {
	const day = 24 * time.Hour
	if k < borderTame {
		return of(borderKind(k), 1+w.random.Int64N(300), pick(w.random, ms, sec, mnt, time.Duration(1+w.random.Int64N(1e6))*us))
	}
	for {
		window := pick(w.random, us, 7*us, ms, sec, sec, mnt, time.Hour, day, 30*day, 365*day, limit.MaxWindow, time.Duration(1+w.random.Int64N(1e9))*us)
		window = pick(w.random, window, window, max(window-us, us)) // often odd, so that a product is not exact beyond 2^53
		counts := []int64{1, 2, 3, 7, 60, 1 + w.random.Int64N(500), 999_983, 1 << 32, limit.MaxCount}
		for _, border := range borders {
			counts = append(counts, w.near(border/window.Microseconds()))
		}
		l := limit.Limit{Algorithm: borderKind(k), Count: pick(w.random, counts...), Window: window}
		if w.chance(0.03) {
			l.Count = 0
		}
		l.Burst = pick(w.random, l.Count, l.Count, 1, 2*l.Count, w.random.Int64N(max(l.Count, 0)+1))
		if l.Validate() == nil {
			return l
		}
	}
}

// cost makes up a cost: mostly small, often one that reaches a border of the state or of its products.
func (w *borderWalk) cost(k int) int64 {
	l, s := w.limits[k], &w.states[k]
	switch p := w.random.Float64(); {
	case p < 0.4:
		return 1
	case p < 0.6:
		return 1 + w.random.Int64N(l.Capacity()/10+1)
	case p < 0.7:
		return w.near(l.Capacity() - s.Used)
	case p < 0.8:
		return w.near(pick(w.random, borders...)/l.Window.Microseconds() - s.Used)
	case p < 0.85:
		return w.near(1<<32 - s.Used)
	}
	return pick(w.random, 0, w.near(l.Capacity()), w.random.Int64N(l.Capacity()+2), limit.MaxCount, limit.MaxCost)
}

// tick moves the clock: mostly a little forward, at times to an instant at which the state of a key is at a border.
func (w *borderWalk) tick(k int) {
	l, s := w.limits[k], &w.states[k]
	window := l.Window.Microseconds()
	switch p := w.random.Float64(); {
	case p < 0.35:
		w.now += w.random.Int64N(3)
	case p < 0.6:
		w.now += w.random.Int64N(window/50 + 3)
	case p < 0.65:
		w.now += w.random.Int64N(2*window + 1)
	case p < 0.7:
		w.now = w.near(w.now - w.now%window + window)
	case p < 0.8 && s.At > 0:
		w.now = w.near(s.At)
	case p < 0.85 && s.At > 0:
		w.now = w.near(s.At + pick(w.random, borders...)/max(l.Count, 1))
	case p < 0.9:
		w.now = w.near(w.now + pick(w.random, w.last.RetryAfter, w.last.ResetAfter).Microseconds())
	case p < 0.96:
		w.now -= w.random.Int64N(window/50 + 3)
	case p < 0.98:
		w.now -= w.random.Int64N(3*window + 1)
	}
	if w.now < borderLow || w.now > borderHigh {
		w.now = future + w.random.Int64N(1_000_000_000_000)
	}
}
