package store

// spareAmong is how many of a queue's first entries are looked through for one to forget that is not held.
const spareAmong = 64

// queue is a binary heap: the entry that expires first, which is the one nearest to full, is at the root. It serves both
// expiry and eviction.
type queue []slot

// slot repeats the entry's expiry, so that comparing does not have to fetch the entry.
type slot struct {
	expires int64
	entry   *entry
	held    bool // it is forgotten after others
}

// behind is how far after all others the turn of a slot is that is held.
const behind = int64(1) << 61

// turn is when the slot is forgotten, compared with others: by its expiry, those that are held last.
func (s slot) turn() int64 {
	if s.held {
		return min(s.expires, never-1-behind) + behind
	}
	return s.expires
}

// add puts an entry at the end. The caller sets its expiry and calls fix.
func (q *queue) add(e *entry) {
	e.place = len(*q)
	*q = append(*q, slot{entry: e})
}

// remove takes an entry out, which is no longer in the table.
func (q *queue) remove(e *entry) {
	s := *q
	last, place := len(s)-1, e.place
	s.move(last, place)
	s[last] = slot{}
	*q = s[:last].trimmed()
	if place < last {
		q.fix(place)
	}
	e.place = gone
}

// trimmed returns the queue in less memory if it fills less than a quarter of what it has: no bound counts the rest.
func (q queue) trimmed() queue {
	if cap(q) <= 64 || len(q) > cap(q)/4 {
		return q
	}
	return append(make(queue, 0, cap(q)/2), q...)
}

// spare is the place of the entry that is forgotten first: the one nearest to its end that is not held. Only the first few are looked
// through, so that a flood of cool-downs, or of counters that are used up, leaves room for others.
func (q queue) spare() int {
	if !q[0].held {
		return 0
	}
	best := 0
	for i := 1; i < min(len(q), spareAmong); i++ {
		if !q[i].held && (best == 0 || q[i].expires < q[best].expires) {
			best = i
		}
	}
	return best
}

// move puts the slot at one place of the queue to another.
func (q queue) move(from, to int) {
	q[to] = q[from]
	q[to].entry.place = to
}

// fix restores the order of the queue after the slot at this place has changed.
func (q queue) fix(place int) {
	if !q.sink(place) {
		q.rise(place)
	}
}

// sink moves a slot away from the root until nothing below it expires earlier, and reports whether it moved.
func (q queue) sink(place int) bool {
	moving := q[place]
	at := place
	for {
		child := 2*at + 1
		if child >= len(q) {
			break
		}
		if right := child + 1; right < len(q) && q[right].expires < q[child].expires {
			child = right
		}
		if moving.expires <= q[child].expires {
			break
		}
		q.move(child, at)
		at = child
	}
	q[at] = moving
	moving.entry.place = at
	return at != place
}

// rise moves a slot towards the root until nothing above it expires later.
func (q queue) rise(place int) {
	moving := q[place]
	at := place
	for at > 0 {
		parent := (at - 1) / 2
		if q[parent].expires <= moving.expires {
			break
		}
		q.move(parent, at)
		at = parent
	}
	q[at] = moving
	moving.entry.place = at
}
