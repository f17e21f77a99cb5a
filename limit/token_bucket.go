package limit

// A token bucket keeps the instant at which it is full again: what it owes is the time until then. Go's turn has the
// names of charge.lua.

// readBucket brings the bucket to now.
func (t *turn) readBucket() {
	t.cap, t.unit = t.most*t.window, t.window
	most := t.cap + t.debt*t.fine
	if ahead := t.first - t.now; ahead > most/t.fine {
		t.used = most + 1 // or more, which is the same
	} else if ahead >= 0 {
		t.used = ahead*t.fine + min(t.second, t.fine)
	}
	if t.lent+t.older > 0 {
		t.endLeases()
	}
	if t.used > most {
		t.used, t.changed = most, true
	}
}

// endLeases counts as spent, from its end on, what was on lease and is over. What still is on lease is owed.
func (t *turn) endLeases() {
	if latest := t.now - t.now%epoch + 3*epoch; t.ends > latest {
		t.ends, t.changed = latest, true
	}
	for t.lent+t.older > 0 && t.ends-epoch <= t.now {
		t.used = max(t.used, product(t.lent+t.older, t.unit)-product(t.now-(t.ends-epoch), t.fine))
		t.lent, t.older, t.ends = 0, t.lent, t.ends+epoch
	}
	t.used = max(t.used, product(t.lent+t.older, t.unit))
}

// waitBucket sets when the bucket is full, and when the cost fits.
func (t *turn) waitBucket() {
	full, owed := t.used, t.used
	if t.lent+t.older > 0 {
		soon, late := (t.ends-epoch-t.now)*t.fine+product(t.lent+t.older, t.unit), int64(0)
		if t.lent > 0 {
			late = (t.ends-t.now)*t.fine + product(t.lent, t.unit)
		}
		full = max(t.used, soon, late)
		if product(t.lent+t.older+t.cost, t.unit) > t.cap {
			owed = max(owed, soon)
		}
		if product(t.lent+t.cost, t.unit) > t.cap {
			owed = max(owed, late)
		}
	}
	t.resets = ceilOf(full, t.fine)
	t.passes = ceilOf(owed-t.cap+product(t.cost, t.unit), t.fine)
}

// storeBucket sets the counter of a bucket that owes something.
func (t *turn) storeBucket(expires int64) {
	c := Counter{first: t.now + t.used/t.fine, second: t.used % t.fine, expires: expires}
	if t.lent+t.older > 0 {
		c.lent, c.older, c.ends = t.lent, t.older, t.ends
	}
	t.Counter = c
}
