package limit

// A sliding window keeps two counts: Used, taken in the aligned window that starts at At, and Prev, taken in the one
// before. Prev counts by the part of it that a window ending now still covers, rounded up.

var slidingWindow = algorithm{advance: slidingAdvance, left: slidingLeft, take: slidingTake, wait: slidingWait, reset: slidingReset}

// slidingAdvance moves to the window of now. A start in the future (the clock was set back) goes on as the current window.
func slidingAdvance(t tally, l rate, now int64) tally {
	_, into := divide(now, l.window)
	start := now - into
	if t.At > now+l.window {
		t.At, t.changed = start, true // set back by more than a window: the counts stay, the window is today's
	}
	if t.At > now {
		return t
	}
	if t.At < start-l.window {
		t.Used = 0
	}
	if t.At < start {
		t.Prev, t.Used = t.Used, 0
	}
	t.At = start
	return t
}

func slidingLeft(t tally, l rate, now int64) int64 {
	rest := t.At + l.window - max(now, t.At)
	weight, part := share(t.Prev, rest, l.window)
	if part > 0 {
		weight++
	}
	return l.count - weight - t.Used
}

// slidingTake gives back from the current window first, then from the one before.
func slidingTake(t tally, _ rate, n, _ int64) (tally, int64) {
	n = max(n, -t.Used-t.Prev)
	t.Used += n
	if t.Used < 0 {
		t.Prev, t.Used = t.Prev+t.Used, 0
	}
	return t, n
}

func slidingWait(t tally, l rate, n, now int64) int64 {
	if n > l.count {
		return slidingReset(t, l, now)
	}
	if room := l.count - t.Used - n; room >= 0 {
		return max(t.At+slidingFits(t.Prev, l, room)-now, 0)
	}
	return t.At + l.window + slidingFits(t.Used, l, l.count-n) - now
}

// slidingFits is how far into a window the count of the one before weighs no more than room.
func slidingFits(prev int64, l rate, room int64) int64 {
	if prev <= room {
		return 0
	}
	rest, _ := share(room, l.window, prev)
	return l.window - rest
}

func slidingReset(t tally, l rate, now int64) int64 {
	switch {
	case t.Used > 0:
		return t.At + 2*l.window - now
	case t.Prev > 0:
		return t.At + l.window - now
	}
	return 0
}
