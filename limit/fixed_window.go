package limit

// A fixed window keeps Used, the tokens taken in the window that starts at At. Windows are aligned to the epoch, or are those of a
// Calendar. Then At may lie after the start: where a sidecar did not know the window, a count began at its own instant, and nothing
// that is counted is dropped.

var fixedWindow = algorithm{advance: fixedAdvance, left: fixedLeft, take: fixedTake, wait: fixedWait, reset: fixedReset}

// fixedAdvance moves to the window of now. A start in the future (the clock was set back) goes on as the current window.
func fixedAdvance(t tally, l rate, now int64) tally {
	start, known := l.begin(now)
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
	return t
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
