package limit

// A fixed window keeps Used, the tokens taken in the window that starts at At. Windows are aligned to the epoch.

var fixedWindow = algorithm{advance: fixedAdvance, left: fixedLeft, take: fixedTake, wait: fixedWait, reset: fixedReset}

// fixedAdvance moves to the window of now. A start in the future (the clock was set back) goes on as the current window.
func fixedAdvance(t tally, l rate, now int64) tally {
	_, into := divide(now, l.window)
	start := now - into
	if t.At > now+l.window {
		t.At, t.changed = start, true // set back by more than a window: the count stays, the window is today's
	}
	if t.At > now {
		return t
	}
	if t.At < start {
		t.Used = 0
	}
	t.At = start
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
	return t.At + l.window - now
}
