package simulation

import (
	"cmp"
	"slices"
	"time"
)

// judgeShares: while Redis does not decide, a sidecar admits its share. All shares together are one limit, so no more
// than one limit is admitted beside what Redis admits.
func (w *world) judgeShares(calls []*call) {
	d := calls[0].domain
	if d.policy != "local" || calls[0].user == "r" {
		return
	}
	count, burst := d.most()
	live := int64(w.liveLeast())
	share := newCap(d, max(1, count/live), max(1, burst/live))
	share.margin = w.s.latency + promised.clockLate
	for i := range w.s.sidecars {
		some := map[int][]*call{} // by how often that clock was set before
		for _, c := range calls {
			alone := c.degraded != "" && (c.id == "" || w.s.kind != cluster) // else Redis may have charged this counter
			if alone && c.sidecar == i && c.process == 0 && c.began >= warm && !c.over && c.cost > 0 {
				_, steps := w.skewKnown(i, c.ended)
				some[steps] = append(some[steps], c)
			}
		}
		for _, steps := range sorted(some) {
			share.skew, _ = w.skewKnown(i, some[steps][0].ended)
			w.judgeCap("alone, a sidecar admitted", some[steps], share)
		}
	}
}

// learned is from when on a sidecar knew by how much the servers' clock was wrong.
type learned struct{ at, skew time.Duration }

// learnClocks notes what each sidecar could know of the servers' clock: it is that of the last reply, but for a small
// step back, which it takes for a reply that was late.
func (w *world) learnClocks() {
	replies := slices.Clone(w.calls)
	slices.SortFunc(replies, func(a, b *call) int { return cmp.Compare(a.ended, b.ended) })
	w.clocks = make([][]learned, w.s.sidecars)
	for _, c := range replies {
		if c.degraded != "" || c.lost || c.killed || c.ended == c.began {
			continue
		}
		skew := w.lives[c.life].skew
		known, _ := w.skewKnown(c.sidecar, c.ended)
		if skew > known || skew < known-promised.stepBack {
			w.clocks[c.sidecar] = append(w.clocks[c.sidecar], learned{c.ended, skew})
		}
	}
}

// skewKnown is by how much the servers' clock was wrong, as a sidecar knew it at an instant, and how often it had
// learned another number before.
func (w *world) skewKnown(sidecar int, at time.Duration) (skew time.Duration, steps int) {
	for _, l := range w.clocks[sidecar] {
		if l.at <= at {
			skew = l.skew
			steps++
		}
	}
	return skew, steps
}

// liveLeast is the least number of live sidecars that one of them may know of: a sidecar is counted for five seconds
// after its last sign. It is 1 where some may never have shown up.
func (w *world) liveLeast() int {
	dead := map[int]bool{}
	for _, f := range w.s.faults {
		if f.kind == "kill" {
			dead[f.sidecar] = true
		}
	}
	for at := warm; at < w.s.lasts; at += 50 * time.Millisecond {
		if w.longFault(at, 4*time.Second) {
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
