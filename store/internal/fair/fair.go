// Package fair keeps values by key within bounds of number and bytes. When it is full, the class of keys that
// takes most forgets one: so a flood of made-up keys of one limit pushes out keys of that limit, and of no other.
package fair

import (
	"hash/maphash"
	"math"
	"reflect"
)

const (
	samples    = 32 // entries looked at for one to forget; a look that misses the largest class forgets one of another
	tidied     = 8  // entries looked at per Trim, so that what has ended goes
	placeBytes = 96 // of an entry in the map and in the list, with the room that they grow by
)

// Name is a key in few bytes: two seeded hashes, so that no client can aim at another's entry. Two of a million keys
// share a name with a chance of 1 in 10^26. A key would take more memory than what is kept for it.
type Name [2]uint64

// Entry is what is kept for one key. Value is its user's.
type Entry[V any] struct {
	Value V
	name  Name
	class uint32
	until int64
	extra int64 // bytes that the value points to
	held  bool
	place int // in Table.all; -1: it was dropped
}

// Table is a set of entries. It is not safe for concurrent use.
type Table[V any] struct {
	seeds   [2]maphash.Seed
	byName  map[Name]*Entry[V]
	all     []*Entry[V]
	cursor  int
	base    int64            // bytes of an entry without what its value points to
	least   int64            // of an entry's weight, so that the bound is one of number as well
	bound   int64            // of weight
	weight  int64            // of all entries
	classes map[uint32]int64 // the weight of each
	bytes   int64
	evicted int64
}

// New makes an empty table of at most so many entries, from 1, that take at most so many bytes; 0: no bound of bytes.
func New[V any](entries int, bytes int64) *Table[V] {
	if bytes <= 0 {
		bytes = math.MaxInt64 / 2
	}
	t := &Table[V]{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, bound: bytes}
	t.least = bytes / int64(max(entries, 1))
	t.base = int64(reflect.TypeFor[Entry[V]]().Size())*5/4 + placeBytes
	t.Clear()
	return t
}

// Name is the name of a key.
func (t *Table[V]) Name(key string) Name {
	return Name{maphash.String(t.seeds[0], key), maphash.String(t.seeds[1], key)}
}

// Get returns the entry of a name, nil without one.
func (t *Table[V]) Get(n Name) *Entry[V] { return t.byName[n] }

// At returns the entry of a name, or a new one of this class. Keep or Drop has to follow, before the next Trim.
func (t *Table[V]) At(n Name, class uint32) *Entry[V] {
	e := t.byName[n]
	if e == nil {
		e = &Entry[V]{name: n, class: class, place: len(t.all)}
		t.byName[n], t.all = e, append(t.all, e)
		t.weigh(e, 1)
	}
	return e
}

// Keep keeps an entry until an instant, or drops it if that has come. Its value points to so many bytes. Where entries
// have to be forgotten, one that is held goes after others, and the one that ends first goes first.
func (t *Table[V]) Keep(e *Entry[V], until, now, bytes int64, held bool) {
	switch {
	case until <= now:
		t.Drop(e)
	case e.place >= 0:
		t.weigh(e, -1)
		e.until, e.extra, e.held = until, bytes, held
		t.weigh(e, 1)
	}
}

// Drop forgets an entry, if it is there; nil is not.
func (t *Table[V]) Drop(e *Entry[V]) {
	if e == nil || e.place < 0 {
		return
	}
	last := len(t.all) - 1
	t.all[e.place] = t.all[last]
	t.all[e.place].place = e.place
	t.all[last] = nil
	t.all = t.all[:last]
	t.weigh(e, -1)
	delete(t.byName, e.name)
	e.place = -1
}

// weigh adds an entry to the sums, or with -1 subtracts it.
func (t *Table[V]) weigh(e *Entry[V], sign int64) {
	bytes := t.base + e.extra
	weight := max(bytes, t.least)
	t.bytes += sign * bytes
	t.weight += sign * weight
	t.classes[e.class] += sign * weight
	if t.classes[e.class] == 0 {
		delete(t.classes, e.class)
	}
}

// Trim drops some entries that have ended, and forgets others until all are within the bounds.
func (t *Table[V]) Trim(now int64) {
	for range min(tidied, len(t.all)) {
		if e := t.next(1); e.until <= now {
			t.Drop(e)
		}
	}
	for t.weight > t.bound {
		t.evict(now)
	}
}

// evict forgets one entry. It looks at some from end to end: entries of a class lie together.
func (t *Table[V]) evict(now int64) {
	step := max(len(t.all)/samples, 1)
	var victim *Entry[V]
	for range min(samples, len(t.all)) {
		if e := t.next(step); victim == nil || t.before(e, victim, now) {
			victim = e
		}
	}
	if victim.until > now {
		t.evicted++
	}
	t.Drop(victim)
}

// before reports whether e is forgotten before another entry.
func (t *Table[V]) before(e, other *Entry[V], now int64) bool {
	mine, its := t.classes[e.class], t.classes[other.class]
	switch {
	case e.until <= now || other.until <= now:
	case mine != its:
		return mine > its
	case e.held != other.held:
		return other.held
	}
	return e.until < other.until
}

// next moves the cursor of a table that is not empty.
func (t *Table[V]) next(step int) *Entry[V] {
	t.cursor = (t.cursor + step) % len(t.all)
	return t.all[t.cursor]
}

// Clear forgets all entries.
func (t *Table[V]) Clear() {
	t.byName, t.classes = map[Name]*Entry[V]{}, map[uint32]int64{}
	t.all, t.weight, t.bytes = nil, 0, 0
}

// Stats returns how many entries there are, the bytes that they take, estimated from above, and how many were forgotten
// for lack of room.
func (t *Table[V]) Stats() (entries, bytes, evicted int64) {
	return int64(len(t.all)), t.bytes, t.evicted
}
