package store

import (
	"math"
	"strings"
	"sync"

	"github.com/spillway-mesh/spillway/limit"
)

// never is the expiry of nothing.
const never = math.MaxInt64

// Bounds of the tidying that rides on an operation: it must stay too small to be felt.
const (
	tidyShards  = 4 // of the operation's own shards
	tidyEntries = 4 // per shard, so that two operations drop more than they can add
)

// spareAmong is how many of a shard's first entries are looked through for one to forget that is no cool-down.
const spareAmong = 64

// entry is one counter, or one penalty. Its zero state is full; such an entry exists only while the lock of its shard is held.
type entry struct {
	key     string
	state   limit.State
	record  *limit.Record // of a penalty's key, which has no state
	expires int64         // µs instant at which the state is as good as never charged, or nothing in the record matters
	place   int           // in the shard's queue, or outside
}

// outside is the place of an entry that waits for its first charge.
const outside = -1

// shard is a part of the counters. Its queue is a binary heap: the entry that expires first, which is the one nearest to
// full, is at the root. It serves both expiry and eviction.
type shard struct {
	mu      sync.Mutex // guards all below
	entries map[string]*entry
	queue   []slot
}

// slot repeats the entry's expiry, so that comparing does not have to fetch the entry.
type slot struct {
	expires int64
	entry   *entry
}

// entryLocked finds the counter of a key, or makes one that settleLocked removes again unless it is charged. The key is
// copied, since it may be a part of something larger.
func (m *Memory) entryLocked(home uint8, key string) *entry {
	s := &m.shards[home]
	if e := s.entries[key]; e != nil {
		return e
	}
	e := &entry{key: strings.Clone(key), place: outside}
	s.entries[e.key] = e
	return e
}

// settleLocked puts an entry where it belongs after a decision: in the queue by its expiry, or away when it is full.
// It runs once per charge, so an entry that several charges share may pass here again after it went.
func (m *Memory) settleLocked(home uint8, e *entry, expires, now int64) {
	s := &m.shards[home]
	switch {
	case expires <= now && e.place == outside:
		if s.entries[e.key] == e {
			delete(s.entries, e.key)
		}
		return
	case expires <= now:
		m.dropLocked(home, e)
		m.expired.Add(1)
		return
	case e.place == outside:
		m.keys.Add(1)
		s.entries[e.key] = e
		e.place = len(s.queue)
		s.queue = append(s.queue, slot{entry: e})
	case expires == e.expires:
		return
	}
	e.expires = expires
	s.queue[e.place].expires = expires
	s.fix(e.place)
	m.publishLocked(home)
}

// dropLocked forgets an entry.
func (m *Memory) dropLocked(home uint8, e *entry) {
	s := &m.shards[home]
	delete(s.entries, e.key)
	last := len(s.queue) - 1
	place := e.place
	s.move(last, place)
	s.queue[last] = slot{}
	s.queue = s.queue[:last]
	if place < last {
		s.fix(place)
	}
	e.place = outside
	m.keys.Add(-1)
	m.publishLocked(home)
}

// publishLocked tells the others when the first entry of the shard expires, and when the one does that can be spared.
func (m *Memory) publishLocked(home uint8) {
	s := &m.shards[home]
	first, spare := int64(never), int64(never)
	if len(s.queue) > 0 {
		first, spare = s.queue[0].expires, s.queue[s.spare()].expires
	}
	if m.earliest[home].Load() != first {
		m.earliest[home].Store(first)
	}
	if m.spares[home].Load() != spare {
		m.spares[home].Store(spare)
	}
}

// spare is the place of the entry that is forgotten first: the one nearest to its end that is no cool-down, which would
// pardon its client. Only the first few are looked through, so that a flood of cool-downs leaves room for counters.
func (s *shard) spare() int {
	if !s.queue[0].entry.cools() {
		return 0
	}
	best := 0
	for i := 1; i < min(len(s.queue), spareAmong); i++ {
		if !s.queue[i].entry.cools() && (best == 0 || s.queue[i].expires < s.queue[best].expires) {
			best = i
		}
	}
	return best
}

// cools reports whether the entry tells of a cool-down.
func (e *entry) cools() bool {
	return e.record != nil && len(e.record.Ends) > 0
}

// tidyLocked drops a few entries that have expired.
func (m *Memory) tidyLocked(home uint8, now int64) {
	s := &m.shards[home]
	for range tidyEntries {
		if len(s.queue) == 0 || s.queue[0].expires > now {
			return
		}
		m.dropLocked(home, s.queue[0].entry)
		m.expired.Add(1)
	}
}

// tidyNext tidies one shard after the other, one per operation, so that a store in use does not keep what nobody asks
// for. It leaves a shard alone that is busy.
func (m *Memory) tidyNext(now int64) {
	home := uint8(m.cursor.Add(1))
	if m.earliest[home].Load() > now {
		return
	}
	s := &m.shards[home]
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	m.tidyLocked(home, now)
}

// evict forgets the entry that is nearest to full in the whole store and no cool-down. Between the look and the lock
// another request may have charged it; then the next one of that shard goes, which is hardly fuller. It reports whether
// there was one.
func (m *Memory) evict() bool {
	home, first := 0, int64(never)
	for i := range m.spares {
		if at := m.spares[i].Load(); at < first {
			home, first = i, at
		}
	}
	s := &m.shards[home]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return first != never
	}
	e, now := s.queue[0].entry, m.clock()
	if e.expires > now {
		e = s.queue[s.spare()].entry
	}
	if e.expires <= now {
		m.expired.Add(1)
	} else {
		m.evicted.Add(1)
	}
	m.dropLocked(uint8(home), e)
	return true
}

// move puts the slot at one place of the queue to another.
func (s *shard) move(from, to int) {
	s.queue[to] = s.queue[from]
	s.queue[to].entry.place = to
}

// fix restores the order of the queue after the slot at this place has changed.
func (s *shard) fix(place int) {
	if !s.sink(place) {
		s.rise(place)
	}
}

// sink moves a slot away from the root until nothing below it expires earlier, and reports whether it moved.
func (s *shard) sink(place int) bool {
	moving := s.queue[place]
	at := place
	for {
		child := 2*at + 1
		if child >= len(s.queue) {
			break
		}
		if right := child + 1; right < len(s.queue) && s.queue[right].expires < s.queue[child].expires {
			child = right
		}
		if moving.expires <= s.queue[child].expires {
			break
		}
		s.move(child, at)
		at = child
	}
	s.queue[at] = moving
	moving.entry.place = at
	return at != place
}

// rise moves a slot towards the root until nothing above it expires later.
func (s *shard) rise(place int) {
	moving := s.queue[place]
	at := place
	for at > 0 {
		parent := (at - 1) / 2
		if s.queue[parent].expires <= moving.expires {
			break
		}
		s.move(parent, at)
		at = parent
	}
	s.queue[at] = moving
	moving.entry.place = at
}
