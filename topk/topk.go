// Package topk finds out which keys were counted most, in bounded memory: a space-saving sketch. A new key takes the
// place of the one with the lowest count and inherits that count, which is then the most by which its own can be too
// high.
package topk

import "container/heap"

// Counted is a key with its count.
type Counted[K comparable, V any] struct {
	Key   K
	Value V     // what the caller keeps beside a key; zero for one that is new
	Count int64 // at least what was added to the key
	Error int64 // of Count: what may have been added to other keys
	place int   // in the heap
}

// Sketch counts as many keys as it has room for. It is not safe for concurrent use. Make one with New.
type Sketch[K comparable, V any] struct {
	size    int
	byKey   map[K]*Counted[K, V]
	heap    lowest[K, V]
	dropped bool
}

// New makes a sketch of so many keys, at least 1.
func New[K comparable, V any](size int) *Sketch[K, V] {
	return &Sketch[K, V]{size: max(size, 1), byKey: map[K]*Counted[K, V]{}}
}

// Add adds n to the count of a key, and returns what is counted of it, which is valid until the next Add.
func (s *Sketch[K, V]) Add(key K, n int64) *Counted[K, V] {
	c := s.byKey[key]
	switch {
	case c != nil:
		c.Count += n
	case len(s.heap) < s.size:
		c = &Counted[K, V]{Key: key, Count: n}
		s.byKey[key] = c
		heap.Push(&s.heap, c)
		return c
	default:
		c = s.heap[0]
		s.dropped = true
		delete(s.byKey, c.Key)
		s.byKey[key] = c
		*c = Counted[K, V]{Key: key, Count: c.Count + n, Error: c.Count}
	}
	heap.Fix(&s.heap, c.place)
	return c
}

// List returns the keys that have room, in no order.
func (s *Sketch[K, V]) List() []Counted[K, V] {
	all := make([]Counted[K, V], 0, len(s.heap))
	for _, c := range s.heap {
		all = append(all, *c)
	}
	return all
}

// Floor is the count that a key may have and not be in the list.
func (s *Sketch[K, V]) Floor() int64 {
	if len(s.heap) < s.size {
		return 0
	}
	return s.heap[0].Count
}

// Dropped reports whether a key lost its place to another one.
func (s *Sketch[K, V]) Dropped() bool { return s.dropped }

// Clear forgets all keys.
func (s *Sketch[K, V]) Clear() {
	clear(s.byKey)
	clear(s.heap)
	s.heap, s.dropped = s.heap[:0], false
}

// lowest is a heap with the lowest count first.
type lowest[K comparable, V any] []*Counted[K, V]

// Len is how many keys there are.
func (h lowest[K, V]) Len() int { return len(h) }

// Less orders keys by their counts.
func (h lowest[K, V]) Less(i, j int) bool { return h[i].Count < h[j].Count }

// Swap keeps the places of keys up to date.
func (h lowest[K, V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push adds a key at the end.
func (h *lowest[K, V]) Push(c any) {
	one, _ := c.(*Counted[K, V])
	one.place = len(*h)
	*h = append(*h, one)
}

// Pop is for package heap alone: a sketch never shrinks.
func (h *lowest[K, V]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
