package limit

import "sort"

// A sliding log keeps what was taken at each instant. An entry counts from its instant on until, and not including, one
// window later. Entries that no longer count stay in front of Log until they are more than half of it, so that both
// twins drop them rarely and at the same moment.

var slidingLog = algorithm{advance: logAdvance, left: logLeft, take: logTake, wait: logWait, reset: logReset}

// logAdvance finds the first entry that counts now. Time does not run before the newest entry or the last rewrite.
func logAdvance(t tally, l rate, now int64) tally {
	newest := max(t.At, lastAt(t.Log))
	if newest > now+l.window {
		t = logRebase(t, l, newest, now)
		newest = now
	}
	t.now = max(now, newest)
	t.locate(t.now - l.window)
	return t
}

// logRebase makes what counted at the newest entry one entry of now: the clock was set back by more than a window.
func logRebase(t tally, l rate, newest, now int64) tally {
	t.locate(newest - l.window)
	return tally{State: State{At: now}, added: t.logUsed(), changed: true, rewrite: true}
}

// locate finds the first entry after the edge, and the Sum before it.
func (t *tally) locate(edge int64) {
	t.first = sort.Search(len(t.Log), func(i int) bool { return t.Log[i].At > edge })
	t.base = t.Prev
	if t.first > 0 {
		t.base = t.Log[t.first-1].Sum
	}
}

func (t *tally) logUsed() int64 {
	return max(t.kept-t.base, 0) + t.added
}

func logLeft(t tally, l rate, _ int64) int64 {
	return l.count - t.logUsed()
}

// logTake gives back from the newest entries.
func logTake(t tally, _ rate, n, _ int64) (tally, int64) {
	n = max(n, -t.logUsed())
	t.added += n
	if t.added < 0 {
		t.kept, t.added = t.kept+t.added, 0
	}
	return t, n
}

func logWait(t tally, l rate, n, now int64) int64 {
	if n > l.count {
		return logReset(t, l, now)
	}
	over := n - logLeft(t, l, now)
	if over <= 0 {
		return 0
	}
	return t.gone(over, l, now)
}

func logReset(t tally, l rate, now int64) int64 {
	used := t.logUsed()
	if used == 0 {
		return 0
	}
	return t.gone(used, l, now)
}

// gone is the time until the oldest n tokens no longer count.
func (t *tally) gone(n int64, l rate, now int64) int64 {
	sum := t.base + n
	if sum > t.kept {
		return t.now + l.window - now
	}
	return t.Log[t.holder(sum)].At + l.window - now
}

// holder is the index of the entry that took the token of that number.
func (t *tally) holder(sum int64) int {
	return t.first + sort.Search(len(t.Log)-t.first-1, func(i int) bool { return t.Log[t.first+i].Sum >= sum })
}

func (t *tally) saveLog(s *State) {
	n := len(t.Log)
	whole := n > 0 && t.kept == t.Log[n-1].Sum
	if t.rewrite || !whole || 2*t.first > n {
		t.rewriteLog(s)
		return
	}
	if t.added > 0 {
		s.Log = addEntry(s.Log, t.now, t.kept+t.added)
	}
}

// rewriteLog drops the entries that no longer count and those that were given back.
func (t *tally) rewriteLog(s *State) {
	log := t.Log[:0]
	sum := max(t.kept, t.base)
	if t.kept > t.base {
		last := t.holder(t.kept)
		at := t.Log[last].At
		log = append(append(log, t.Log[t.first:last]...), Entry{At: at, Sum: sum})
	}
	if t.added > 0 {
		log = addEntry(log, t.now, sum+t.added)
	}
	*s = State{At: t.now, Prev: t.base, Log: log}
}

// addEntry appends an entry, or raises the last one if that is of the same instant.
func addEntry(log []Entry, at, sum int64) []Entry {
	if n := len(log); n > 0 && log[n-1].At == at {
		log[n-1].Sum = sum
		return log
	}
	return append(log, Entry{At: at, Sum: sum})
}

func lastAt(log []Entry) int64 {
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].At
}
