package limit

// A fixed window keeps Used, the tokens taken in the window that starts at At. Windows are aligned to the epoch, or are those of a
// Calendar. Then At may lie after the start: where a sidecar did not know the window, a count began at its own instant, and nothing
// that is counted is dropped.

var fixedWindow = algorithm{advance: fixedAdvance, left: fixedLeft, take: fixedTake, wait: fixedWait, reset: fixedReset}

// fixedAdvance moves to the window of now. A start in the future (the clock was set back) goes on as the current window.
func fixedAdvance(t tally, l rate, now int64) tally {
	start, known := l.begin(now)
	t.At, t.mark = l.unmarked(t.At, start, now), 0
	if t.At > now+l.window {
		t.At, t.changed = start, true // set back by more than a window: the count stays, the window is today's
	}
	if t.At > now {
		return t
	}
	if known && t.At < start {
		t.Used = 0
	}
	if t.Used == 0 || l.calendar == nil {
		t.At = start
	}
	t.mark = l.mark()
	return t
}

const (
	second     = 1_000_000                 // in microseconds
	mostMarked = 5 * 24 * 60 * 60 * second // a longer window has no mark
)

// mark is what is added to At where a state is kept (see fixed_window.lua); 0 is no mark.
func (l *rate) mark() int64 {
	if l.calendar != nil || l.window%second != 0 || l.window > mostMarked {
		return 0
	}
	return 2*l.window/second + 1
}

// unmarked is At without the mark. No mark of another window stays where At itself stays.
func (l *rate) unmarked(at, start, now int64) int64 {
	switch {
	case l.calendar == nil && l.window%second == 0:
		return at - at%second
	case at > start && (l.calendar != nil || at > now && l.window%2 == 0):
		return at - at%2
	}
	return at
}

func fixedLeft(t tally, l rate, _ int64) int64 {
	return l.count - t.Used
}

func fixedTake(t tally, _ rate, n, _ int64) (tally, int64) {
	n = max(n, -t.Used)
	t.Used += n
	return t, n
}

func fixedWait(t tally, l rate, n, now int64) int64 {
	if n <= fixedLeft(t, l, now) {
		return 0
	}
	return fixedReset(t, l, now)
}

func fixedReset(t tally, l rate, now int64) int64 {
	if l.calendar != nil {
		return l.end(max(t.At, now)) - now
	}
	return t.At + l.window - now
}
