package simulation

import (
	"cmp"
	"slices"
	"time"
)

// judge looks at all calls when they are over. To add an oracle, add a function here.
func (w *world) judge() {
	w.learnClocks()
	counters := map[string][]*call{}
	for _, c := range w.calls {
		if c.killed {
			continue
		}
		w.judgePolicy(c)
		w.judgeTime(c)
		w.judgeRecovery(c)
		at := c.domain.name + "/" + c.user
		counters[at] = append(counters[at], c)
	}
	for _, at := range sorted(counters) {
		calls := counters[at]
		if calls[0].load == "many" {
			continue // none of these users is asked often
		}
		slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.began, b.began) })
		switch calls[0].domain.special {
		case "paid":
			w.judgePostPaid(calls)
			continue
		case "punished":
			w.judgePenalty(calls)
		}
		w.judgeStrict(calls)
		w.judgeShares(calls)
		w.judgeUse(calls)
		w.judgeDenials(calls)
	}
	w.ledger.judge(w.calls)
}

// judgePolicy: what Redis did not decide was decided by the failure policy. A call with an address may also be
// refused because its other counter is known to be spent.
func (w *world) judgePolicy(c *call) {
	switch {
	case c.degraded == "" || c.cost < 0:
	case c.domain.policy == "open" && c.over && c.id == "":
		w.violation(c, "a rule that fails open refused")
	case c.domain.policy == "closed" && !c.over && !c.bill():
		w.violation(c, "a rule that fails closed admitted")
	case c.domain.policy == "closed" && c.over && c.retry != 1 && c.id == "":
		w.violation(c, "a rule that fails closed told to retry after %d s, not 1", c.retry)
	}
	if c.over && c.retry < 1 {
		w.violation(c, "refused without retry-after")
	}
}

// patience is how long a call may take at most. A throttled one may use all of its deadline: its answer is held.
func (c *call) patience() time.Duration {
	switch {
	case c.domain.delay > 0 && c.deadline > 0:
		return min(c.domain.delay+promised.patience, c.deadline-1)
	case c.deadline > 0:
		return min(promised.patience, c.deadline*8/10)
	}
	return c.domain.delay + promised.patience
}

// short reports whether a call's deadline is not much longer than the way to Redis and back, behind another call. Where
// so many come that they wait for several calls, it is that much shorter.
func (w *world) short(c *call) bool {
	within := func(ways int) bool {
		return c.deadline > 0 && c.deadline*8/10 <= time.Duration(ways)*w.s.latency+time.Millisecond
	}
	return within(4) || within(8) && (c.degraded == "overload" || w.ahead(c) > carried)
}

// carried is how many calls a sidecar has on their way to a server at most.
const carried = 2 * 64

// ahead is how many calls a sidecar has not answered when a call begins.
func (w *world) ahead(c *call) (n int) {
	for _, o := range w.calls {
		if o.sidecar == c.sidecar && o.began <= c.began && o.ended > c.began {
			n++
		}
	}
	return n
}

// judgeTime: every answer leaves in time.
func (w *world) judgeTime(c *call) {
	if took := c.ended - c.began; took > c.patience() {
		w.violation(c, "answered after %v, and at most %v is right", took, c.patience())
	}
}

// judgeRecovery: some seconds after the last repair Redis decides again.
func (w *world) judgeRecovery(c *call) {
	if c.degraded == "" || w.short(c) || c.hung || w.faultsWithin(c.began-promised.repaired, c.ended) {
		return
	}
	w.violation(c, "not decided by redis, though no fault was within %v before", promised.repaired)
}

// faultsWithin reports whether a fault was active between two instants. Before the end of the warm-up all is a fault.
func (w *world) faultsWithin(from, to time.Duration) bool {
	if from < 0 {
		return true
	}
	for _, f := range w.s.faults {
		if f.begins <= to && f.begins+f.lasts >= from {
			return true
		}
	}
	return false
}

// judgeStrict: what Redis decided, by itself or by leases, is never more than the limit.
func (w *world) judgeStrict(calls []*call) {
	d := calls[0].domain
	count, burst := d.most()
	for life := range w.lives {
		if w.lives[life].split {
			continue
		}
		var some []*call
		for _, c := range calls {
			counts := c.cost < 0 || c.degraded == "" && !c.over && c.cost > 0
			if counts && c.life == life && !c.lost && !c.killed && !c.hungThrottled() && w.sinceLife(c) {
				some = append(some, c)
			}
		}
		m := newCap(d, count, burst)
		m.skew = w.lives[life].skew
		for _, c := range calls {
			if d.algorithm == "token_bucket" && c.degraded != "" && c.over && c.cost > 0 {
				m.given = append(m.given, c)
			}
		}
		w.judgeCap("redis admitted", some, m)
	}
}

// judgeUse: without faults a fixed window that is asked for more than its limit admits exactly that.
func (w *world) judgeUse(calls []*call) {
	d := calls[0].domain
	if d.algorithm != "fixed_window" || d.lease || len(d.changes) > 0 || calls[0].user == "r" {
		return
	}
	for from := w.window(d, 0); from < w.s.lasts; from += d.window {
		admitted, asked, doubtful := int64(0), int64(0), w.faultsWithin(from-promised.repaired, from+d.window)
		doubtful = doubtful || w.stepped(from-promised.clockCaught-2*d.window, from+d.window) ||
			w.skewAt(from)%d.window != 0
		for _, c := range calls {
			if c.ended < from || c.began >= from+d.window {
				continue
			}
			outside := c.began < from || c.ended >= from+d.window
			doubtful = doubtful || outside || c.cost != 1 || c.hung || c.degraded != ""
			asked++
			if !c.over {
				admitted++
			}
		}
		if want := min(asked, d.count); !doubtful && admitted < want {
			const text = "the window from %v admitted %d of %d, and the limit is %d"
			w.violation(calls[0], text, from, admitted, asked, d.count)
		}
	}
}

// window is the begin of the first window of a domain at or after an instant.
func (w *world) window(d *domain, at time.Duration) time.Duration {
	from := w.began.Add(at).Truncate(d.window)
	if from.Before(w.began.Add(at)) {
		from = from.Add(d.window)
	}
	return from.Sub(w.began)
}

// keptWaiting: a client that comes back after retry-after is admitted, if it alone uses the counter.
func (w *world) keptWaiting(before, c *call) {
	if before == nil || !c.over || c.degraded != "" || c.life != before.life || c.lost || len(c.domain.changes) > 0 {
		return
	}
	w.violation(c, "refused, and was told %v before to come back after %d s", c.began-before.ended, before.retry)
}
