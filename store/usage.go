package store

import "github.com/spillway-mesh/spillway/limit"

// addHeld adds to the answers about what is left what this process holds of the counters, because a decision spends that first.
func (h *holdings) addHeld(asked []limit.Charge, decisions []limit.Decision) {
	if h.kept.Load() == 0 {
		return
	}
	now := h.instant()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range asked {
		l, d := h.find(&asked[i]), &decisions[i]
		if l == nil || d.Outcome == limit.Undecided {
			continue
		}
		held := l.left(now)
		d.Remaining = min(d.Remaining+held, asked[i].Limit.Capacity())
		if d.Outcome == limit.Refused && held >= asked[i].Cost {
			d.Outcome, d.RetryAfter = limit.Allowed, 0
		}
	}
}
