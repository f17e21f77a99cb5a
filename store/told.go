package store

import (
	"hash/maphash"

	"github.com/spillway-mesh/spillway/limit"
)

// OnHeld makes count hear what requests spend of tokens that are held here: n of a counter that is charged so. It hears sums: with each call for more tokens, when
// what is held is returned, and before a charge on the counter is left undecided. It must not block nor call the store. Without leases it hears nothing.
func (r *Redis) OnHeld(count func(c limit.Charge, n int64)) {
	if r.holdings == nil {
		return
	}
	r.holdings.mu.Lock()
	defer r.holdings.mu.Unlock()
	r.holdings.onHeld = count
}

// tellLocked tells what was spent of a holding since it was last told.
func (h *holdings) tellLocked(l *holding) {
	if l.untold != 0 && h.onHeld != nil {
		h.onHeld(limit.Charge{Key: l.key, Limit: l.limit, Class: l.class, Share: l.share}, l.untold)
	}
	l.untold = 0
}

// tellUndecided tells what was spent of the counters that the server could not be asked about: from now on another one counts for them.
func (h *holdings) tellUndecided(charges []limit.Charge, decisions []limit.Decision) {
	for i := range charges {
		if decisions[i].Outcome != limit.Undecided {
			continue
		}
		l := h.slots[maphash.String(h.seed, charges[i].Key)%holdingSlots].Load()
		if l == nil || l.key != charges[i].Key {
			continue
		}
		h.mu.Lock()
		h.tellLocked(l)
		h.mu.Unlock()
	}
}
