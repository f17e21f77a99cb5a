package fleet

import (
	"errors"
	"net"
	"time"
)

// start is when the process began, as far as this package is concerned.
var start = time.Now()

// virtual is set where time is: no processor is ever busy there.
var virtual bool

// UseVirtualTime makes all fleets count time from an instant, and look at no processor. It is for tests in a bubble of
// testing/synctest, whose clock begins before this process did. It is called once, before the first fleet is made.
func UseVirtualTime(began time.Time) { start, virtual = began, true }

// processTime is the time since start.
func processTime() time.Duration { return time.Since(start) }

const (
	silentParts = 5                    // a link is looked at this often within the time after which it is silent,
	lookMost    = 5 * time.Millisecond // and at least this often
	lookLeast   = time.Millisecond / 4
	lingerFor   = time.Second // how long a silent or retired link is kept for what it owes
)

// watch looks at a link while it has calls. It has a clock of its own, process time: one that stands still while this process gets no
// processor. A look that comes late because of that moves the clock by no more than two looks would, so neither the server's
// silence nor a call's patience is used up by a stall of ours. A caller's deadline is on the wall, and passes meanwhile. While no processor of this machine is idle, or its host takes
// processors away, no server is called silent, up to a bound: one that is on the same machine may wait for a processor, too. Once it answers on
// another link it has had one.
type watch struct {
	link   *link
	timer  *time.Timer
	armed  bool          // the timer runs
	clock  time.Duration // process time at the last look
	looked time.Duration // when that was, on the wall
	heard  uint64        // of the link, at the last look
	spoke  time.Duration // process time since when the server owes something and has sent nothing
	next   time.Duration // process time at which the first call's patience ends; never after it
	until  time.Duration // likewise, on the wall: when the first caller has to be answered; 0: no caller has a deadline
	ends   time.Duration // process time at which the link is given up; 0: not yet
	quiet  bool          // nothing came between the last two looks
	idle   time.Duration // how long processors had been idle when it became quiet
	asked  time.Duration // when the other links were asked for a sign of life, on the wall; 0: not since it became quiet
	passed time.Duration // process time since when the server is known to answer on another link meanwhile; 0: it is not
}

func (w *watch) init(l *link) {
	w.link = l
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
	w.looked = processTime()
}

// every is the time between two looks.
func (w *watch) every() time.Duration {
	return min(max(w.link.node.bounds.Silence/silentParts, lookLeast), lookMost)
}

// nowLocked is the process time now.
func (w *watch) nowLocked(now time.Duration) time.Duration {
	return w.clock + min(now-w.looked, 2*w.every())
}

// addLocked begins to watch over a call that may wait so long.
func (w *watch) addLocked(c *Call, now, allow time.Duration) {
	if !w.armed {
		w.armed = true
		w.clock = w.nowLocked(now)
		w.looked, w.spoke, w.next, w.until = now, w.clock, w.clock+allow, 0
		w.timer.Reset(min(w.every(), allow))
	}
	c.began, c.sent = now, w.nowLocked(now)
	c.due = c.sent + allow
	w.hurryLocked(c)
	if c.due < w.next {
		w.next = c.due
		if allow < w.every() {
			w.timer.Reset(allow)
		}
	}
}

// hurryLocked notes when the caller of a call has to be answered.
func (w *watch) hurryLocked(c *Call) {
	if c.until > 0 && (w.until == 0 || c.until < w.until) {
		w.until = c.until
	}
}

// retireLocked gives the link a while for what it owes.
func (w *watch) retireLocked() {
	if w.ends == 0 {
		w.ends = w.clock + lingerFor
	}
}

func (w *watch) stopLocked() {
	w.armed = false
	w.timer.Stop()
}

// look finds out whether the server is silent, whose patience has ended, and whether the link is of any use still.
func (w *watch) look() {
	l, now := w.link, processTime()
	l.node.host.tick(now)
	l.mu.Lock()
	if l.ended != nil {
		l.mu.Unlock()
		return
	}
	w.clock, w.looked = w.nowLocked(now), now
	l.node.load.tick(now)
	if l.flight.len() == 0 && len(l.queue) == 0 {
		w.armed = false
		retired := l.retired.Load()
		l.mu.Unlock()
		if retired {
			l.end(net.ErrClosed)
		}
		return
	}
	silent := w.silentLocked()
	if silent {
		w.ends = w.clock + lingerFor
		l.silent.Store(true)
	}
	ask, asked, all := w.asksLocked(now), w.asked, w.passed == 0
	gaveUp := w.ends > 0 && w.clock >= w.ends
	late := w.expireLocked(l.silent.Load())
	w.timer.Reset(max(min(w.every(), w.next-w.clock), lookLeast))
	l.mu.Unlock()
	if ask {
		l.node.ask(l)
	}
	if silent && all {
		l.node.doubt(l, asked)
	}
	w.report(silent, gaveUp, late)
}

// report tells what a look found, without the lock.
func (w *watch) report(silent, gaveUp bool, late time.Duration) {
	if silent {
		w.link.poke()
	}
	if late > 0 {
		w.link.node.late(late)
	}
	if gaveUp {
		w.link.end(errGivenUp)
	}
}

// silentLocked reports whether the server has just become silent: it has owed replies for long enough and sent nothing, and there is
// nothing to read either. While the reader hands out what it has read, what is owed may be part of that.
func (w *watch) silentLocked() bool {
	l := w.link
	heard := l.heard.Load()
	owes := l.flight.head()
	switch {
	case heard != w.heard || owes == nil || l.handing.Load():
		w.heard = heard
		w.hearsLocked()
		if !l.retired.Load() {
			w.ends = 0
		}
		return false
	case owes.sent > w.spoke:
		w.spoke = owes.sent
	}
	if !w.quiet {
		w.quiet = true
		w.idle, _ = w.idled()
	}
	if l.silent.Load() || !w.overdueLocked() {
		return false
	}
	if w.passed == 0 {
		l.node.silentFrom.CompareAndSwap(0, int64(max(processTime()-(w.clock-w.spoke), 1)))
	}
	return true
}

// hearsLocked notes that the server has just sent something, or owes nothing.
func (w *watch) hearsLocked() { w.spoke, w.quiet, w.asked, w.passed = w.clock, false, 0, 0 }

// asksLocked reports whether to ask for a sign of life on the other links: half of the time after which the server is silent is over. What
// they answer shows whether the server is silent or this link alone.
func (w *watch) asksLocked(now time.Duration) bool {
	if !w.quiet || w.asked > 0 || w.clock-w.spoke < w.link.node.silence()/2 {
		return false
	}
	w.asked = now
	return true
}

// overdueLocked reports whether a server that owes replies has sent nothing for too long, and is to blame for that.
func (w *watch) overdueLocked() bool {
	quiet, bound := w.clock-w.spoke, w.link.node.silence()
	if quiet < bound || !w.passedLocked() && w.excusedLocked(quiet-bound) {
		return false
	}
	if readable(w.link.socket) {
		w.hearsLocked()
		return false
	}
	return true
}

// passedLocked reports whether the server has answered on another link since that was asked, and nothing has come here for the bound since:
// this process may have been kept from reading it. What is not written yet cannot be passed.
func (w *watch) passedLocked() bool {
	switch {
	case w.link.writes || w.link.alone:
		w.asked, w.passed = 0, 0
	case w.passed == 0 && w.asked > 0 && time.Duration(w.link.node.heard.Load()) > w.asked:
		w.passed = w.clock
	}
	return w.passed > 0 && w.clock-w.passed >= w.link.node.silence()
}

// excusedLocked reports whether a server that is late by so much may wait for a processor of this machine: none is idle, or the host took that of
// the server away, which then answers on no other link either.
func (w *watch) excusedLocked(late time.Duration) bool {
	return w.passed == 0 && w.link.node.host.excuses(w.looked, late) || late < crowdedFor && w.crowdedLocked()
}

// crowdedFor is how much longer a server may send nothing while no processor of this machine is idle.
const crowdedFor = 200 * time.Millisecond

// idleStep is the step of the kernel's count of idle time.
const idleStep = 10 * time.Millisecond

// idled is how long the processors have been idle so far. It reports whether that is known.
func (w *watch) idled() (time.Duration, bool) {
	if virtual {
		return 0, false
	}
	return idled()
}

// crowdedLocked reports whether no processor was idle since the server became quiet. One step of the count may have been nearly over
// before, so where more wants to run than can just now, it takes two.
func (w *watch) crowdedLocked() bool {
	idle, ok := w.idled()
	if !ok {
		return false
	}
	idle -= w.idle
	return idle < idleStep || idle < 2*idleStep && crowded()
}

// hurriesLocked reports whether a caller has to be answered now. What has arrived is read first.
func (w *watch) hurriesLocked() bool {
	return 0 < w.until && w.until <= w.looked && !readable(w.link.socket)
}

// expireLocked ends the waits of calls without patience, of those whose callers can wait no longer, or of all where the server is silent. It
// returns the longest patience that ran out while the server answered, 0 if none did.
func (w *watch) expireLocked(silent bool) time.Duration {
	hurry := w.hurriesLocked()
	if !silent && !hurry && w.clock < w.next {
		return 0
	}
	l, late := w.link, time.Duration(0)
	w.next, w.until = w.clock+time.Hour, 0
	each := func(c *Call) {
		if c.state.Load() != waiting {
			return
		}
		err := w.overLocked(c, silent, hurry)
		if err == nil {
			w.next = min(w.next, c.due)
			w.hurryLocked(c)
		} else if c.leave(err) && errors.Is(err, errPatience) {
			late = max(late, c.due-c.sent)
		}
	}
	for i := range l.flight.len() {
		each(l.flight.at(i))
	}
	for _, c := range l.queue {
		each(c)
	}
	return late
}

// overLocked is why the wait of a call ends now; nil: it goes on.
func (w *watch) overLocked(c *Call, silent, hurry bool) error {
	switch {
	case silent:
		return errSilent
	case c.due <= w.clock:
		return errPatience
	case hurry && 0 < c.until && c.until <= w.looked:
		return errDeadline
	}
	return nil
}
