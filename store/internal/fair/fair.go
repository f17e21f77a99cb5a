// Package fair keeps values by key within bounds of number and bytes. When they are reached, the class of keys that
// takes most forgets one: so a flood of made-up keys of one limit pushes out keys of that limit, and of no other.
package fair

import (
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"sync"
	"sync/atomic"
)

// Bounds of a Table.
const (
	maxStripes = 64  // as many as Set has bits
	stripeRoom = 256 // entries that a stripe holds at least, where there is more than one
	samples    = 32  // entries looked at for one to forget; a look that misses the largest class forgets one of another
	tidied     = 2   // entries looked at per change, so that what has ended goes
	placeBytes = 96  // of an entry in the map and in the list, with the room that they grow by
)

// Name stands for a key: two seeded hashes, so that no client can aim at another's entry. Two of a million keys share a
// name with a chance of 1 in 10^26. A key would take more memory than what is kept for it.
type Name [2]uint64

// Set is a set of stripes.
type Set uint64

// Entry is what is kept for one key. Value is its user's, while the stripe is locked.
type Entry[V any] struct {
	Value V
	name  Name
	class *load
	until int64
	size  int64
	place int // in the list of its stripe; -1: it is not kept
	held  bool
}

// load is how many entries there are, and the bytes that they take.
type load struct{ class, entries, bytes int64 }

// Table is a set of entries. It is safe for concurrent use where stripes are locked as the methods require.
type Table[V any] struct {
	seeds   [2]maphash.Seed
	stripes []stripe[V]
	base    int64 // bytes of an entry without what its value points to
	entries atomic.Int64
	bytes   atomic.Int64
	evicted atomic.Int64
}

type stripe[V any] struct {
	mu      sync.Mutex // guards all below
	byName  map[Name]*Entry[V]
	all     []*Entry[V]
	cursor  int
	classes map[int64]*load
	used    load
	bound   load
}

// New makes an empty table of at most so many entries, from 1, that take at most so many bytes; 0: no bound of bytes.
// The stripes divide both bounds.
func New[V any](entries int, bytes int64) *Table[V] {
	t := &Table[V]{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	t.base = int64(reflect.TypeFor[Entry[V]]().Size())*5/4 + placeBytes
	if bytes <= 0 {
		bytes = math.MaxInt64
	}
	fit := min(int64(max(entries, 1)), bytes/t.base)
	t.stripes = make([]stripe[V], min(max(fit/stripeRoom, 1), maxStripes))
	n := int64(len(t.stripes))
	for i := range t.stripes {
		s := &t.stripes[i]
		s.byName, s.classes = make(map[Name]*Entry[V]), make(map[int64]*load)
		s.bound = load{entries: max(int64(entries)/n, 1), bytes: bytes / n}
	}
	return t
}

// Name is the name of a key.
func (t *Table[V]) Name(key string) Name {
	return Name{maphash.String(t.seeds[0], key), maphash.String(t.seeds[1], key)}
}

// Only is the set of a name's stripe. Sets are joined with |.
func (t *Table[V]) Only(n Name) Set { return 1 << (n[0] % uint64(len(t.stripes))) }

// Lock locks stripes, in the order of their numbers, so that no two callers wait for each other.
func (t *Table[V]) Lock(set Set) {
	for ; set != 0; set &= set - 1 {
		t.stripes[bits.TrailingZeros64(uint64(set))].mu.Lock()
	}
}

// Unlock ends Lock.
func (t *Table[V]) Unlock(set Set) {
	for ; set != 0; set &= set - 1 {
		t.stripes[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}

// With calls a function with the name and the entry of a key, nil if there is none, while its stripe is locked.
func (t *Table[V]) With(key string, run func(n Name, e *Entry[V])) {
	n := t.Name(key)
	s := t.stripe(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	run(n, s.byName[n])
}

func (t *Table[V]) stripe(n Name) *stripe[V] { return &t.stripes[n[0]%uint64(len(t.stripes))] }

// At returns the entry of a name, or a new one. Its stripe is locked until Keep or Drop has been called with it.
func (t *Table[V]) At(n Name, class uint32) *Entry[V] {
	s := t.stripe(n)
	e := s.byName[n]
	if e == nil {
		e = &Entry[V]{name: n, class: s.classes[int64(class)], place: -1}
		if e.class == nil {
			e.class = &load{class: int64(class)}
		}
		s.byName[n] = e
	}
	return e
}

// Keep keeps an entry until an instant, or drops it if that has come. Its value points to so many bytes. Where entries
// have to be forgotten, one that is held goes after others, and the one that ends first goes first. The stripe is
// locked.
func (t *Table[V]) Keep(e *Entry[V], until, now, size int64, held bool) {
	if until <= now {
		t.Drop(e)
		return
	}
	s := t.stripe(e.name)
	for range min(tidied, len(s.all)) {
		if old := s.next(1); old.until <= now && old != e {
			t.Drop(old)
		}
	}
	size += t.base
	if e.place < 0 {
		t.link(s, e)
	}
	t.weigh(s, e, 0, size-e.size)
	e.until, e.size, e.held = until, size, held
	for s.used.entries > s.bound.entries || s.used.bytes > s.bound.bytes {
		t.evict(s, now)
	}
}

// Drop forgets an entry. Its stripe is locked.
func (t *Table[V]) Drop(e *Entry[V]) {
	s := t.stripe(e.name)
	delete(s.byName, e.name)
	if e.place < 0 {
		return
	}
	last := len(s.all) - 1
	s.all[e.place] = s.all[last]
	s.all[e.place].place = e.place
	s.all[last] = nil
	s.all = s.all[:last]
	if cap(s.all) > stripeRoom && last < cap(s.all)/4 { // no bound counts what is not in use
		s.all = append(make([]*Entry[V], 0, cap(s.all)/2), s.all...)
	}
	t.weigh(s, e, -1, -e.size)
	e.place, e.size = -1, 0
}

// Clear forgets all entries.
func (t *Table[V]) Clear() {
	for i := range t.stripes {
		s := &t.stripes[i]
		s.mu.Lock()
		for len(s.all) > 0 {
			t.Drop(s.all[len(s.all)-1])
		}
		s.mu.Unlock()
	}
}

// Stats returns how many entries there are, the bytes that they take, estimated from above, and how many were forgotten
// for lack of room.
func (t *Table[V]) Stats() (entries, bytes, evicted int64) {
	return t.entries.Load(), t.bytes.Load(), t.evicted.Load()
}

// link puts a new entry in the list of its stripe.
func (t *Table[V]) link(s *stripe[V], e *Entry[V]) {
	if known := s.classes[e.class.class]; known != nil {
		e.class = known
	} else {
		s.classes[e.class.class] = e.class
	}
	s.byName[e.name] = e
	e.place = len(s.all)
	s.all = append(s.all, e)
	t.weigh(s, e, 1, 0)
}

// weigh counts a change of an entry.
func (t *Table[V]) weigh(s *stripe[V], e *Entry[V], entries, bytes int64) {
	for _, l := range []*load{&s.used, e.class} {
		l.entries, l.bytes = l.entries+entries, l.bytes+bytes
	}
	t.entries.Add(entries)
	t.bytes.Add(bytes)
	if e.class.entries == 0 {
		delete(s.classes, e.class.class)
	}
}

// next moves the cursor of a stripe that is not empty.
func (s *stripe[V]) next(step int) *Entry[V] {
	s.cursor = (s.cursor + step) % len(s.all)
	return s.all[s.cursor]
}

// evict forgets an entry of a stripe that is not empty. It looks at some from end to end: entries of a class lie
// together.
func (t *Table[V]) evict(s *stripe[V], now int64) {
	byBytes := s.used.bytes > s.bound.bytes
	var victim *Entry[V]
	step := max(len(s.all)/samples, 1)
	for range min(samples, len(s.all)) {
		e := s.next(step)
		if e.until <= now {
			t.Drop(e)
			return
		}
		if victim == nil || e.before(victim, byBytes) {
			victim = e
		}
	}
	t.Drop(victim)
	t.evicted.Add(1)
}

// before reports whether e is forgotten before another entry.
func (e *Entry[V]) before(other *Entry[V], byBytes bool) bool {
	mine, its := e.class.entries, other.class.entries
	if byBytes {
		mine, its = e.class.bytes, other.class.bytes
	}
	switch {
	case mine != its:
		return mine > its
	case e.held != other.held:
		return other.held
	}
	return e.until < other.until
}
