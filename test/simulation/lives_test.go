package simulation

import "time"

// life is a time in which the counters of Redis are those of one history: a server that loses what it held, a master
// that is followed by one that knows less, and a clock that is set, each begin another one.
type life struct {
	began time.Duration
	skew  time.Duration // of the servers' clocks
	split bool          // two servers take themselves for the master
}

// newLife begins another life. change changes it, beside what it has from the one before.
func (w *world) newLife(why string, change func(l *life)) {
	w.mu.Lock()
	l := w.lives[len(w.lives)-1]
	l.began = w.since()
	if change != nil {
		change(&l)
	}
	w.lives = append(w.lives, l)
	w.mu.Unlock()
	w.trace.add("life %d: %s", len(w.lives)-1, why)
}

// lifeNow is the number of the present life.
func (w *world) lifeNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lives) - 1
}

// sinceLife reports whether a call began when no lease of an earlier life could be spent any more.
func (w *world) sinceLife(c *call) bool {
	return c.life == 0 || c.began > w.lives[c.life].began+promised.leaseTail
}

// stepped reports whether a clock was set, or a life began otherwise, between two instants.
func (w *world) stepped(from, to time.Duration) bool {
	for _, l := range w.lives[1:] {
		if l.began >= from && l.began <= to {
			return true
		}
	}
	return false
}

// clock is the time of the servers.
func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.lives[len(w.lives)-1].skew)
}

// setClock sets the servers' clocks forward, or back.
func (w *world) setClock(by time.Duration) {
	w.newLife("the clock of redis is set by "+by.String(), func(l *life) { l.skew += by })
}

// skewAt is by how much the servers' clocks were wrong.
func (w *world) skewAt(at time.Duration) (skew time.Duration) {
	for _, l := range w.lives {
		if l.began <= at {
			skew = l.skew
		}
	}
	return skew
}
