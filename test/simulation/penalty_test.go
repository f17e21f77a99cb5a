package simulation

import "time"

// judgePenalty: a cool-down comes after so many refusals, and refuses all until it ends. calls are those of one client,
// which waits for each answer.
func (w *world) judgePenalty(calls []*call) {
	d := calls[0].domain
	usual := int64((d.window + time.Second - 1) / time.Second) // the longest that a refusal by the limit alone waits
	var until *call
	for i, c := range calls {
		if c.degraded != "" || c.killed || c.lost || w.stepped(c.began-promised.clockCaught, c.ended) {
			until = nil // a bucket waits until a clock that was set back has caught up
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
			w.violation(c, "a cool-down begins after %d refusals, not %d", d.refusals(calls[:i], c.began)+1, d.threshold)
		case c.over && c.retry > int64(d.coolDown/time.Second):
			w.violation(c, "a cool-down lasts longer than %v", d.coolDown)
		}
		if c.over && c.retry > usual && c.began >= ends {
			until = c
		}
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
