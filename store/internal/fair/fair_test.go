package fair

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// keep keeps a value of a class until an instant.
func keep(t *Table[int], class uint32, key string, until, now int64, held bool) {
	t.With(key, func(n Name, _ *Entry[int]) { t.Keep(t.At(n, class), until, now, 0, held) })
}

// has reports whether there is an entry.
func has(t *Table[int], key string) (found bool) {
	t.With(key, func(_ Name, e *Entry[int]) { found = e != nil })
	return found
}

// check compares the sums with the entries, and the entries with the bounds.
func check(t *testing.T, table *Table[int]) {
	t.Helper()
	var entries, bytes int64
	for i := range table.stripes {
		s := &table.stripes[i]
		var used load
		classes := map[int64]load{}
		for place, e := range s.all {
			if e.place != place || s.byName[e.name] != e || s.classes[e.class.class] != e.class {
				t.Fatalf("the entry in place %d is not where it belongs", place)
			}
			l := classes[e.class.class]
			classes[e.class.class] = load{e.class.class, l.entries + 1, l.bytes + e.size}
			used.entries, used.bytes = used.entries+1, used.bytes+e.size
		}
		if used != s.used || len(s.byName) != len(s.all) || len(classes) != len(s.classes) {
			t.Fatalf("%+v counted, there are %+v", s.used, used)
		}
		for class, l := range classes {
			if *s.classes[class] != l {
				t.Fatalf("%+v counted, there are %+v", *s.classes[class], l)
			}
		}
		if used.entries > s.bound.entries || used.bytes > s.bound.bytes {
			t.Fatalf("%+v is above %+v", used, s.bound)
		}
		entries, bytes = entries+used.entries, bytes+used.bytes
	}
	if e, b, _ := table.Stats(); e != entries || b != bytes {
		t.Fatalf("%d entries of %d bytes counted, there are %d of %d", e, b, entries, bytes)
	}
}

// TestAFloodCostsItsOwnClass: whatever a flood counts by, and however long its entries live.
func TestAFloodCostsItsOwnClass(t *testing.T) {
	tables := map[string]*Table[int]{"entries": New[int](5000, 0), "bytes": New[int](1_000_000, 5000*200)}
	for name, table := range tables {
		t.Run(name, func(t *testing.T) {
			for i := range 500 {
				keep(table, 1, fmt.Sprint("login ", i), 60, 0, false)
			}
			for i := range 50_000 {
				keep(table, 2, fmt.Sprint("day ", i), 86_400, 0, true)
			}
			for i := range 500 {
				if !has(table, fmt.Sprint("login ", i)) {
					t.Fatalf("login %d is gone", i)
				}
			}
			if _, _, evicted := table.Stats(); evicted < 40_000 {
				t.Errorf("%d were evicted", evicted)
			}
			check(t, table)
		})
	}
}

// TestWhatIsHeldGoesLast: and what ends first goes first.
func TestWhatIsHeldGoesLast(t *testing.T) {
	table := New[int](20, 0) // fewer than are looked at, so the order is exact
	for i := range 20 {
		keep(table, 1, fmt.Sprint(i), int64(100-i), 0, i >= 10)
	}
	for i := range 5 {
		keep(table, 1, fmt.Sprint("new ", i), 1000, 0, true)
	}
	for i := range 20 {
		if kept := has(table, fmt.Sprint(i)); kept != (i < 5 || i >= 10) {
			t.Errorf("%d is kept: %v", i, kept)
		}
	}
}

// TestWhatHasEndedGoesFirst: no live entry is forgotten for one that has ended.
func TestWhatHasEndedGoesFirst(t *testing.T) {
	table := New[int](1000, 0)
	for i := range 300 {
		keep(table, 1, fmt.Sprint("past ", i), 10, 0, false)
	}
	for i := range 900 {
		keep(table, 2, fmt.Sprint("live ", i), 100, 20, false)
	}
	if entries, _, evicted := table.Stats(); entries != 900 || evicted != 0 {
		t.Errorf("%d entries, %d evicted, want 900 and none", entries, evicted)
	}
	check(t, table)
}

// TestSumsStayRight is a random walk.
func TestSumsStayRight(t *testing.T) {
	random, table := rand.New(rand.NewPCG(1, 1)), New[int](2000, 300_000)
	for i := range 50_000 {
		key := fmt.Sprint(random.IntN(4000))
		table.With(key, func(n Name, _ *Entry[int]) {
			e := table.At(n, uint32(random.IntN(5)))
			if random.IntN(10) == 0 {
				table.Drop(e)
			} else {
				table.Keep(e, int64(i+random.IntN(3000)), int64(i), random.Int64N(100), random.IntN(3) == 0)
			}
		})
	}
	check(t, table)
	table.Clear()
	check(t, table)
	if entries, bytes, _ := table.Stats(); entries != 0 || bytes != 0 {
		t.Errorf("%d entries of %d bytes are left", entries, bytes)
	}
}
