package limit

// A window counts what was taken in it. Its counter expires with the last ms of the window, that of a sliding window
// one window later. Go's turn has the names of charge.lua.

// readWindow brings the count to the window of now.
func (t *turn) readWindow() {
	t.cap, t.unit = t.most, 1
	length := t.window
	if t.algorithm == calendarTerms {
		length = t.debt - t.fine
		t.end = t.calendarEnd(t.now, length)
	} else {
		t.end = t.now - t.now%t.window + t.window
	}
	if t.algorithm == slidingTerms {
		t.tail = t.window
	}
	switch expires := t.Expires(); {
	case t.tail > 0 && expires == t.end:
		t.prev = t.first
	case expires > t.now:
		t.readCount(length)
	}
	if !t.stored && t.tail == 0 && t.end-t.now <= 1000 {
		t.end = t.following(length)
	}
	if t.prev > 0 {
		t.steps = t.window / t.fine
		t.cap -= weigh(t.prev, min(ceilOf(t.end-t.now, t.fine), t.steps), t.steps)
	}
}

// readCount sets what the window counts: it is that of the counter, or the next one because the clock was set back, or
// takes over the count of another length.
func (t *turn) readCount(length int64) {
	t.used, t.prev = t.first, t.second
	end := t.Expires() - t.tail
	if t.stored = end == t.end || end == t.following(length); t.stored {
		t.end = end
	} else {
		t.changed = true
	}
}

// weigh returns n * part / whole, rounded up; for very large n at least MaxCount.
func weigh(n, part, whole int64) int64 { return ceilOf(product(n, part), whole) }

// calendarEnd is when the calendar's window of now ends. Beyond the edges windows are as long as the last one.
func (t *turn) calendarEnd(now, length int64) int64 {
	switch {
	case now < t.window:
		return t.window
	case now < t.fine:
		return t.fine
	}
	return t.debt + max(floorOf(now-t.debt, length)+1, 0)*length
}

// following is when the window after the present one ends.
func (t *turn) following(length int64) int64 {
	switch {
	case t.algorithm == calendarTerms && t.end < t.fine:
		return t.fine
	case t.algorithm == calendarTerms && t.end < t.debt:
		return t.debt
	}
	return t.end + length
}

// waitSliding sets when a sliding window is full again, and when the cost fits.
func (t *turn) waitSliding() {
	switch {
	case t.used > 0:
		t.resets = t.end + t.window - t.now
	case t.prev > 0:
		t.resets = t.end - t.now
	}
	switch {
	case t.outcome != int64(Refused) || t.cost <= t.remaining || t.cost > t.most:
	case t.cost <= t.most-t.used: // once the window before weighs little enough
		t.passes = t.end - t.now - product(t.most-t.used-t.cost, t.steps)/t.prev*t.fine
	default: // once this one does, in the next
		late := product(t.most-t.cost, t.window/t.fine) / t.used * t.fine
		t.passes = t.end + t.window - t.now - min(late, t.window)
	}
}

// storeWindow sets the counter of a window that counts something.
func (t *turn) storeWindow() {
	c := Counter{first: t.used, second: t.prev, expires: t.expires}
	if !t.stored {
		c.expires = (t.end+t.tail)/1000 - 1
	}
	t.Counter = c
}
