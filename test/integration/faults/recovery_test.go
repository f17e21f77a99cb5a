package faults

import "time"

// healthy is from when on the store has to decide everything.
func (x *trial) healthy() time.Time { return x.ended.Add(x.heals) }

// watch is how long the load continues after that.
func (x *trial) watch() time.Duration {
	if full {
		return 5 * time.Second
	}
	return time.Second
}

// closes checks that the breaker closed soon after the repair.
func (x *trial) closes(within time.Duration) {
	x.Helper()
	if x.seen.closed > within {
		x.misses("the breaker closed after %v, at most %v", x.seen.closed, within)
	}
}

// healed checks that the breaker closed in time after the repair and did not open again, and that from then on the
// store decided everything.
func (x *trial) healed() {
	x.Helper()
	x.closes(x.heals)
	const changes = "spillway_breaker_transitions_total"
	if n := x.after.sum(changes, `to="open"`) - x.calm.sum(changes, `to="open"`); n > 0 {
		x.misses("the breaker opened %d times again after the repair", n)
	}
	all, reasons := 0, map[string]int{}
	for i := range x.all {
		a := &x.all[i]
		if a.at.Before(x.healthy()) {
			continue
		}
		all++
		if a.degraded != "" {
			reasons[a.degraded]++
		}
	}
	if len(reasons) > 0 {
		x.misses("of %d answers after the recovery some were degraded: %v", all, reasons)
	}
	if all < rate/2 {
		x.misses("only %d answers came after the recovery", all)
	}
}
