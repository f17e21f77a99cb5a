package store

import (
	"math"
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

// name stands for a key: two hashes, seeded per process, so that no client can aim at a shard or at another's counter. Two keys of one name would
// share a counter; among a million keys there are such with a chance of 1 in 10^26. A key itself takes more memory than its counter, and to compare it
// takes longer than all else.
type name [2]uint64

// home is the number of the shard of a name.
func (n name) home() uint8 { return uint8(n[0]) }

// entry is one counter, or one penalty. Its zero state is full; such an entry exists only while the lock of its shard is held.
type entry struct {
	name    name
	state   limit.State
	record  *limit.Record // of a penalty's key, which has no state
	pot     *pot          // of its class
	cost    int64         // bytes that it counts for, once it is in a queue
	expires int64         // µs instant at which the state is as good as never charged, or nothing in the record matters
	place   int           // in the pot's queue of its shard, or one of those below
	spent   bool          // nothing is left of it, which its expiry does not tell
	held    bool          // what its slot says about that
}

// Places of an entry that is in no queue.
const (
	outside = -1 // it waits for its first charge
	gone    = -2 // it is in the table no longer, either
)

// Bytes that a counter takes, measured and rounded up.
const (
	entryBytes  = 240 // the entry, its place in the table and in the queue, each with the room that they grow by
	recordBytes = 64  // a record without its lists
	logBytes    = 16  // one entry of a sliding log
)

// bytes is what the entry takes now.
func (e *entry) bytes() int64 {
	n := entryBytes + logBytes*cap(e.state.Log)
	if e.record != nil {
		n += recordBytes + 8*(cap(e.record.Ends)+cap(e.record.Refusals))
	}
	return int64(n)
}

// cools reports whether the entry tells of a cool-down.
func (e *entry) cools() bool {
	return e.record != nil && len(e.record.Ends) > 0
}

// holds reports whether the entry is forgotten after others, because that would pardon its client.
func (e *entry) holds() bool { return e.spent || e.cools() }

// shard is a part of the counters, with the lock that guards them and their queues in all pots.
type shard struct {
	mu      sync.Mutex // guards entries, and queues[i] of each pot where this is shard i
	entries table
}

// entryLocked finds the counter of a name, or makes one that settleLocked removes again unless it is charged.
func (m *Memory) entryLocked(name name, class uint32) *entry {
	s := &m.shards[name.home()]
	if e := s.entries.find(name); e != nil {
		return e
	}
	e := &entry{name: name, pot: m.pots.of(class), place: outside}
	s.entries.add(e)
	return e
}

// settleLocked puts an entry where it belongs after a decision: in the queue by its expiry, or away when it is full.
// It runs once per charge, so an entry that several charges share may pass here again after it went.
func (m *Memory) settleLocked(e *entry, expires, now int64) {
	home := e.name.home()
	s := &m.shards[home]
	switch {
	case expires <= now && e.place < 0:
		if e.place == outside {
			s.entries.remove(e)
			e.place = gone
		}
		return
	case expires <= now:
		m.dropLocked(e)
		m.expired.Add(1)
		return
	case e.place < 0:
		if e.place == gone {
			s.entries.add(e)
		}
		m.keys.Add(1)
		e.pot.keys.Add(1)
		e.pot.queues[home].add(e)
	case expires == e.expires && e.holds() == e.held:
		m.weighLocked(e)
		return
	}
	m.weighLocked(e)
	e.expires, e.held = expires, e.holds()
	q := e.pot.queues[home]
	q[e.place].expires, q[e.place].held = expires, e.held
	q.fix(e.place)
	e.pot.publishLocked(home)
}

// weighLocked takes in how many bytes an entry takes now.
func (m *Memory) weighLocked(e *entry) {
	if grown := e.bytes() - e.cost; grown != 0 {
		e.cost += grown
		e.pot.bytes.Add(grown)
		m.bytes.Add(grown)
	}
}

// dropLocked forgets an entry.
func (m *Memory) dropLocked(e *entry) {
	home := e.name.home()
	m.shards[home].entries.remove(e)
	e.pot.queues[home].remove(e)
	m.keys.Add(-1)
	e.pot.keys.Add(-1)
	m.bytes.Add(-e.cost)
	e.pot.bytes.Add(-e.cost)
	e.cost = 0
	e.pot.publishLocked(home)
}

// tidyLocked drops a few entries that have expired.
func (m *Memory) tidyLocked(p *pot, home uint8, now int64) {
	for n := 0; n < tidyEntries && p.earliest[home].Load() <= now; n++ {
		m.dropLocked(p.queues[home][0].entry)
		m.expired.Add(1)
	}
}

// tidyNext tidies one queue after the other, one per operation, so that counters that get no more charges do not stay. It does not
// wait for the lock of a shard.
func (m *Memory) tidyNext(now int64) {
	all := m.pots.list()
	if len(all) == 0 {
		return
	}
	turn := m.cursor.Add(1)
	home, p := uint8(turn), all[int(turn/shardCount)%len(all)]
	if p.earliest[home].Load() > now {
		return
	}
	s := &m.shards[home]
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	m.tidyLocked(p, home, now)
}

// evict forgets what has expired in any class, else one entry of the class that takes most: the one that is nearest to full, and neither
// used up nor a cool-down. It reports whether there may be more. Between the look and the lock another request may have charged or forgotten that entry; then
// nothing goes, and the caller looks again.
func (m *Memory) evict() bool {
	if m.evictExpired() {
		return true
	}
	p := m.pots.fullest(m.bytes.Load() <= m.maxBytes)
	if p == nil {
		return false
	}
	home, first := p.first()
	s := &m.shards[home]
	s.mu.Lock()
	defer s.mu.Unlock()
	q := p.queues[home]
	if len(q) == 0 {
		return first != never
	}
	e, now := q[0].entry, m.clock()
	if e.expires > now {
		e = q[q.spare()].entry
	}
	switch {
	case e.expires > now && q[e.place].turn() > first:
		return true
	case e.expires <= now:
		m.expired.Add(1)
	default:
		m.evicted.Add(1)
	}
	m.dropLocked(e)
	return true
}

// evictExpired drops a few entries that have expired, and reports whether there were any.
func (m *Memory) evictExpired() bool {
	now := m.clock()
	p, home := m.pots.expired(now)
	if p == nil {
		return false
	}
	before := m.expired.Load()
	m.shards[home].mu.Lock()
	m.tidyLocked(p, uint8(home), now)
	m.shards[home].mu.Unlock()
	return m.expired.Load() > before
}
