package topk

import (
	"math/rand/v2"
	"testing"
)

// TestCountsAreWithinTheirErrors adds keys at random, many more than there is room for: a key in the list has at most
// its count and at least its count without the error, one that is not in the list at most the floor.
func TestCountsAreWithinTheirErrors(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s, exact := New[int, bool](50), map[int]int64{}
	for range 100_000 {
		key := int(random.ExpFloat64() * 40)
		n := random.Int64N(3) + 1
		exact[key] += n
		s.Add(key, n)
	}
	listed := map[int]bool{}
	for _, c := range s.List() {
		listed[c.Key] = true
		if is := exact[c.Key]; is > c.Count || is < c.Count-c.Error {
			t.Errorf("%d was counted %d times, and the sketch has %d with an error of %d", c.Key, is, c.Count, c.Error)
		}
	}
	for key, n := range exact {
		if !listed[key] && n > s.Floor() {
			t.Errorf("%d was counted %d times and is not in the list, whose floor is %d", key, n, s.Floor())
		}
	}
	if len(listed) != 50 || !s.Dropped() {
		t.Errorf("%d keys are in the list, want 50; dropped: %v", len(listed), s.Dropped())
	}
}

// TestWhatFitsIsExact adds as many keys as there is room for, and keeps a value beside one.
func TestWhatFitsIsExact(t *testing.T) {
	s := New[string, int](3)
	for range 4 {
		s.Add("a", 1).Value++
		s.Add("b", 2)
	}
	if a := s.Add("a", 1); a.Value != 4 || a.Count != 5 || a.Error != 0 || s.Floor() != 0 || s.Dropped() {
		t.Errorf("a is %+v, the floor %d", *a, s.Floor())
	}
	s.Add("c", 9)
	if s.Floor() != 5 {
		t.Errorf("the floor of a full sketch is %d, want that of a: 5", s.Floor())
	}
	if d := s.Add("d", 1); d.Value != 0 || d.Count != 6 || d.Error != 5 || !s.Dropped() {
		t.Errorf("what took the place of a is %+v", *d)
	}
	s.Clear()
	if len(s.List()) != 0 || s.Floor() != 0 || s.Dropped() {
		t.Errorf("a sketch that was cleared has %v", s.List())
	}
}

// TestAddAllocatesNothing once all places are taken.
func TestAddAllocatesNothing(t *testing.T) {
	s, n := New[int, bool](64), 0
	add := func() { n++; s.Add(n%1000, 1) }
	for range 10_000 {
		add()
	}
	if got := testing.AllocsPerRun(10_000, add); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
