package fair

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// keep keeps a value of a class until an instant.
func keep(t *Table[int], class uint32, key string, until, now int64, held bool) {
	t.Keep(t.At(t.Name(key), class), until, now, 0, held)
	t.Trim(now)
}

// check compares the sums with the entries, and the entries with the bounds.
func check(t *testing.T, table *Table[int]) {
	t.Helper()
	var bytes, weight int64
	classes := map[uint32]int64{}
	for place, e := range table.all {
		if e.place != place || table.byName[e.name] != e {
			t.Fatalf("the entry in place %d is not where it belongs", place)
		}
		size := table.base + e.extra
		bytes, weight = bytes+size, weight+max(size, table.least)
		classes[e.class] += max(size, table.least)
	}
	if bytes != table.bytes || weight != table.weight || !maps.Equal(classes, table.classes) {
		t.Fatalf("the sums are %d, %d and %v, want %d, %d and %v",
			table.bytes, table.weight, table.classes, bytes, weight, classes)
	}
	entries := int64(len(table.all))
	if entries*table.least > table.bound || bytes > table.bound || len(table.byName) != len(table.all) {
		t.Fatalf("%d entries take %d bytes, above the bounds", entries, bytes)
	}
}

// TestAFloodCostsItsOwnClass: with any scope of a flood, and however long its entries live.
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
				if table.Get(table.Name(fmt.Sprint("login ", i))) == nil {
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
		if kept := table.Get(table.Name(fmt.Sprint(i))) != nil; kept != (i < 5 || i >= 10) {
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
		for range 1 + random.IntN(3) {
			e := table.At(table.Name(fmt.Sprint(random.IntN(4000))), uint32(random.IntN(5)))
			if random.IntN(10) == 0 {
				table.Drop(e)
			}
			table.Keep(e, int64(i+random.IntN(3000)), int64(i), random.Int64N(100), random.IntN(3) == 0)
		}
		table.Trim(int64(i))
	}
	check(t, table)
	table.Clear()
	check(t, table)
	if entries, bytes, _ := table.Stats(); entries != 0 || bytes != 0 {
		t.Errorf("%d entries of %d bytes are left", entries, bytes)
	}
}
