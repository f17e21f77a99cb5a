package exact

import "math"

// maxima is an array that is raised by prefixes and asked for the largest value of a range, both in log n steps.
type maxima struct {
	size  int     // a power of two
	best  []int64 // of each node's leaves, without what its parents were raised by
	place []int   // of that leaf
	added []int64 // to all leaves of a node
}

func newMaxima(values []int64) *maxima {
	size := 1
	for size < len(values) {
		size *= 2
	}
	m := &maxima{size: size, best: make([]int64, 2*size), place: make([]int, 2*size), added: make([]int64, 2*size)}
	for i := range size {
		m.best[size+i], m.place[size+i] = math.MinInt64/2, i
		if i < len(values) {
			m.best[size+i] = values[i]
		}
	}
	for node := size - 1; node > 0; node-- {
		m.gather(node)
	}
	return m
}

// gather works out a node from its two children.
func (m *maxima) gather(node int) {
	child := 2 * node
	if m.best[child+1] > m.best[child] {
		child++
	}
	m.best[node], m.place[node] = m.best[child]+m.added[node], m.place[child]
}

// raise adds to all values up to and including last.
func (m *maxima) raise(last int, by int64) { m.raiseBelow(1, 0, m.size, last+1, by) }

func (m *maxima) raiseBelow(node, low, high, end int, by int64) {
	if low >= end {
		return
	}
	if high <= end {
		m.best[node] += by
		m.added[node] += by
		return
	}
	middle := (low + high) / 2
	m.raiseBelow(2*node, low, middle, end, by)
	m.raiseBelow(2*node+1, middle, high, end, by)
	m.gather(node)
}

// most is the largest value from first on, up to and without end, and its place.
func (m *maxima) most(first, end int) (value int64, place int) {
	return m.mostBelow(1, 0, m.size, first, end)
}

func (m *maxima) mostBelow(node, low, high, first, end int) (value int64, place int) {
	if high <= first || low >= end {
		return math.MinInt64, -1
	}
	if first <= low && high <= end {
		return m.best[node], m.place[node]
	}
	middle := (low + high) / 2
	value, place = m.mostBelow(2*node, low, middle, first, end)
	other, at := m.mostBelow(2*node+1, middle, high, first, end)
	if other > value {
		value, place = other, at
	}
	if value > math.MinInt64 {
		value += m.added[node]
	}
	return value, place
}
