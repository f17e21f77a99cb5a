package simulation

import (
	"cmp"
	"slices"
	"time"
)

// judge looks at all calls when they are over. To add an oracle, add a function here.
func (w *world) judge() {
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
	case c.domain.policy == "open" && c.over && c.id == "" && c.domain.special == "":
		w.violation(c, "a rule that fails open refused")
	case c.domain.policy == "closed" && !c.over && !c.bill():
		w.violation(c, "a rule that fails closed admitted")
	case c.domain.policy == "closed" && c.retry != 1 && c.id == "" && c.domain.special == "":
		w.violation(c, "a rule that fails closed told to retry after %d s, not 1", c.retry)
	}
	if c.over && c.retry < 1 {
		w.violation(c, "refused without retry-after")
	}
}

// patience is how long a caller without a deadline waits at most. Where tokens are leased a call may wait for a lease
// that is on its way, and then for its own reply.
func (d *domain) patience() time.Duration {
	if d.delay > 0 {
		return d.delay + promised.patience
	}
	if d.lease {
		return promised.hotPatience
	}
	return promised.patience
}

// waitsAgain reports whether a call may miss its deadline, a known fault: it waits for a lease, for its own reply, and
// for what is given back elsewhere, each as long as its deadline allows. One that has time for these does not miss it.
func (w *world) waitsAgain(c *call) bool {
	return c.domain.lease || w.s.kind == cluster && c.id != "" || w.short(c)
}

// short reports whether a call's deadline is not much longer than the way to Redis and back.
func (w *world) short(c *call) bool {
	return c.deadline > 0 && c.deadline*8/10 <= 8*w.s.latency+time.Millisecond
}

// judgeTime: every answer leaves before its caller's deadline.
func (w *world) judgeTime(c *call) {
	took := c.ended - c.began
	switch {
	case c.hungThrottled(): // it waits until its token is given back
	case w.waitsAgain(c) && took < promised.waits*c.deadline:
	case c.deadline > 0 && took >= c.deadline:
		w.violation(c, "answered after %v, and the deadline was %v", took, c.deadline)
	case took > c.domain.patience():
		w.violation(c, "answered after %v, more than the patience", took)
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
		m.doubtful = w.doubtful(calls, life)
		w.judgeCap("redis admitted", some, m)
	}
}

// doubtful are the calls that a policy refused, or that were hung up, and that Redis may have charged: such a charge is
// given back. A sliding log gives back its newest entries in place of the one in question, a known fault. Counters that
// begin another life do not hold what was charged in the one before.
func (w *world) doubtful(calls []*call, life int) (some []*call) {
	for _, c := range calls {
		givenBack := c.cost > 0 && (c.over && c.degraded != "" || c.hung || c.killed)
		if givenBack && (c.domain.algorithm == "sliding_log" || c.life < life) {
			some = append(some, c)
		}
	}
	return some
}

// judgeShares: while Redis does not decide, a sidecar admits its share.
func (w *world) judgeShares(calls []*call) {
	d := calls[0].domain
	if d.policy != "local" || calls[0].user == "r" {
		return
	}
	count, burst := d.most()
	live := int64(w.liveLeast())
	share := newCap(d, max(1, count/live), max(1, burst/live))
	if d.hot { // what leases decide is counted in sums, a moment later: a hundredth more was seen
		share.count += share.count*promised.hotShare/100 + 1
		share.burst += share.burst*promised.hotShare/100 + 1
	}
	for i := range w.s.sidecars {
		var some []*call
		for _, c := range calls {
			if c.sidecar == i && c.process == 0 && c.began >= warm && c.degraded != "" && !c.over && c.cost > 0 {
				some = append(some, c)
			}
		}
		w.judgeCap("alone, a sidecar admitted", some, share)
	}
}

// liveLeast is the least number of live sidecars that one of them may know of. It is 1 where the heartbeat may have
// missed some.
func (w *world) liveLeast() int {
	if len(w.lives) > 1 {
		return 1
	}
	dead := map[int]bool{}
	for _, f := range w.s.faults {
		if f.kind == "kill" {
			dead[f.sidecar] = true
		}
	}
	for at := warm; at < w.s.lasts; at += 50 * time.Millisecond {
		if w.longFault(at, 3*time.Second) {
			return 1
		}
	}
	return max(1, w.s.sidecars-len(dead))
}

// longFault reports whether each moment of that time had a fault.
func (w *world) longFault(from time.Duration, lasts time.Duration) bool {
	for at := from; at < from+lasts; at += 50 * time.Millisecond {
		if !w.faultsWithin(at, at) {
			return false
		}
	}
	return true
}

// judgeUse: without faults a fixed window that is asked for more than its limit admits exactly that.
func (w *world) judgeUse(calls []*call) {
	d := calls[0].domain
	if d.algorithm != "fixed_window" || d.lease || len(d.changes) > 0 || calls[0].user == "r" {
		return
	}
	for from := w.window(d, 0); from < w.s.lasts; from += d.window {
		admitted, asked, doubtful := int64(0), int64(0), w.faultsWithin(from-promised.repaired, from+d.window)
		doubtful = doubtful || w.stepped(from-promised.clockCaught-2*d.window, from+d.window) || w.skewAt(from)%d.window != 0
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
