package store

import (
	"math/rand/v2"
	"testing"
)

// crowdedNames makes names that share few places, many of them at the end of a table, and few tags.
func crowdedNames(r *rand.Rand, n int) []name {
	var all []name
	seen := map[name]bool{}
	for len(all) < n {
		one := name{uint64(r.IntN(4))<<8 | uint64(r.IntN(8)), uint64(r.IntN(n))}
		if r.IntN(2) == 0 {
			one[0] |= 1<<40 - 1<<11 // whose place is among the last ones, whatever the size of the table
		}
		if !seen[one] {
			seen[one] = true
			all = append(all, one)
		}
	}
	return all
}

// A table holds what a map would, in whatever order entries come and go.
func TestATableHoldsWhatAMapDoes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		names := crowdedNames(r, 1+r.IntN(60))
		var got table
		want := map[name]*entry{}
		for step := range 400 {
			n := names[r.IntN(len(names))]
			switch e := want[n]; {
			case e == nil:
				e = &entry{name: n}
				want[n] = e
				got.add(e)
			default:
				delete(want, n)
				got.remove(e)
				got.remove(e) // it is not there: nothing happens
			}
			got.touch(n)
			if got.count != len(want) {
				t.Fatalf("seed %d, step %d: the table counts %d entries, want %d", seed, step, got.count, len(want))
			}
			for _, n := range names {
				if e := got.find(n); e != want[n] {
					t.Fatalf("seed %d, step %d: the entry of %x is %p, want %p", seed, step, n, e, want[n])
				}
			}
		}
	}
}

// A table has room for what it holds, and little more.
func TestATableGrowsWithItsEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var all table
	for n := 1; n <= 100_000; n++ {
		all.add(&entry{name: name{r.Uint64(), r.Uint64()}})
		if cells := len(all.cells); 2*cells < 3*n || cells > max(leastCells, 3*n) {
			t.Fatalf("a table of %d entries has %d cells", n, cells)
		}
	}
}

// FuzzTable adds and removes in an order that the fuzzer chooses.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0, 9, 17, 1, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var got table
		want := map[name]*entry{}
		for _, b := range steps {
			n := name{uint64(b%16) << 8, uint64(b / 64)}
			if e := want[n]; e != nil {
				delete(want, n)
				got.remove(e)
				continue
			}
			want[n] = &entry{name: n}
			got.add(want[n])
		}
		for b := range 256 {
			n := name{uint64(b%16) << 8, uint64(b / 64)}
			if got.find(n) != want[n] {
				t.Fatalf("the entry of %x is %p, want %p", n, got.find(n), want[n])
			}
		}
	})
}
