package limit

import (
	"slices"
	"sort"
)

// A sliding log keeps what was taken at each instant. An entry counts from its instant on until, and not at, one window
// later.

// logView is a log as of now: the c of log.lua.
type logView struct {
	from  int   // index of the first entry that counts
	at    int64 // the instant of new entries
	base  int64 // sum before the first entry that counts
	used  int64 // tokens that count
	kept  int64 // of them in entries
	moved bool  // the clock was set back far: what counted is taken now
}

// readLog brings the log to now.
func (t *turn) readLog() {
	t.cap, t.unit = t.most, 1
	t.log = logView{at: t.now, base: t.first}
	v, n := &t.log, len(t.entries)
	if n == 0 {
		return
	}
	newest, sum := t.entries[n-1].at, t.entries[n-1].sum
	at := max(t.now, newest)
	v.from = sort.Search(n, func(i int) bool { return t.entries[i].at > at-t.window })
	if v.from > 0 {
		v.base = t.entries[v.from-1].sum
	}
	v.used = sum - v.base
	if newest > t.now+t.window {
		v.moved = true
	} else {
		v.at, v.kept = at, v.used
	}
	t.used, t.changed = v.used, v.moved
}

// waitLog enters what the charge takes, and sets when nothing counts and when the cost fits.
func (t *turn) waitLog() {
	v := &t.log
	// A refund gives back the oldest entries, whichever the tokens are from: what stays counts longer than it would,
	// never shorter.
	if oldest := min(v.used-t.used, v.kept); oldest > 0 {
		v.from, v.base, v.kept = t.entryWith(oldest+1), v.base+oldest, v.kept-oldest
	}
	v.used = t.used
	if t.used > 0 {
		t.resets = t.oldest(t.used)
	}
	if over := t.used + t.cost - t.most; over > 0 && t.cost <= t.most {
		t.passes = t.oldest(over)
	}
}

// oldest is the time until the oldest tokens, so many of them, do not count any more.
func (t *turn) oldest(tokens int64) int64 {
	at := t.log.at
	if tokens <= t.log.kept {
		at = t.entries[t.entryWith(tokens)].at
	}
	return at + t.window - t.now
}

// entryWith is the index of the entry that took the last of the oldest tokens.
func (t *turn) entryWith(tokens int64) int {
	counting := t.entries[t.log.from:]
	return t.log.from + sort.Search(len(counting)-1, func(i int) bool { return counting[i].sum >= t.log.base+tokens })
}

// storeLog sets the entries.
func (t *turn) storeLog() {
	v := &t.log
	switch {
	case v.used == 0:
		t.Counter = Counter{}
		return
	case v.kept == 0:
		t.first, t.entries = 0, append(t.entries[:0], entry{v.at, v.used})
		return
	}
	last := len(t.entries) - 1
	if v.used > v.kept && t.entries[last].at == v.at {
		t.entries[last].sum = v.base + v.used
	} else if v.used > v.kept {
		t.entries = append(t.entries, entry{v.at, v.base + v.used})
	}
	t.first, t.entries = v.base, slices.Delete(t.entries, 0, v.from)
}
