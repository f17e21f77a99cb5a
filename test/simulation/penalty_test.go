package simulation

import "time"

// judgePenalty: a cool-down comes after so many refusals, and refuses all until it ends. calls are those of one client,
// which waits for each answer.
func (w *world) judgePenalty(calls []*call) {
	d := calls[0].domain
	usual := int64((d.window + time.Second - 1) / time.Second) // the longest that a refusal by the limit alone waits
	var until *call
	var refused []time.Duration // since the last cool-down, surely counted
	sure := time.Duration(0)    // no cool-down lasts from here on that is not known
	for i, c := range calls {
		if c.degraded != "" || c.killed || c.lost || w.stepped(c.began-promised.clockCaught, c.ended) {
			// A bucket waits until a clock that was set back has caught up.
			until, refused, sure = nil, nil, c.ended+d.coolDown
			continue
		}
		ends := time.Duration(0)
		if until != nil {
			ends = until.ended + time.Duration(until.retry)*time.Second
		}
		switch {
		case !c.over && c.ended < ends-time.Second:
			w.violation(c, "admitted, though a cool-down lasts until %v", ends)
		case c.over && c.retry > usual && c.began >= ends && d.refusals(calls[:i], c.began) < d.threshold-1:
			w.violation(c, "a cool-down begins after %d refusals, not %d", d.refusals(calls[:i], c.began)+1,
				d.threshold)
		case c.over && c.retry > int64(d.coolDown/time.Second):
			w.violation(c, "a cool-down lasts longer than %v", d.coolDown)
		}
		switch {
		case !c.over || c.began < ends || c.began < sure && c.retry <= usual:
		case c.retry > usual:
			until, refused = c, nil
		default:
			refused = append(refused, c.began)
			w.judgeThreshold(c, refused)
		}
	}
}

// judgeThreshold: without faults, a cool-down begins with the refusal that reaches the threshold. c is the last of
// those at the instants.
func (w *world) judgeThreshold(c *call, refused []time.Duration) {
	n := 0
	for _, at := range refused {
		if at >= c.ended-c.domain.detection {
			n++
		}
	}
	if n >= c.domain.threshold && !w.short(c) && !w.faultsWithin(refused[0]-promised.repaired, c.ended) {
		w.violation(c, "refused %d times, and no cool-down begins", n)
	}
}

// refusals are those before an instant that may count for a cool-down.
func (d *domain) refusals(before []*call, at time.Duration) (n int) {
	for _, c := range before {
		if (c.over || c.degraded != "" || c.killed) && c.ended >= at-d.detection-promised.patience {
			n++
		}
	}
	return n
}
