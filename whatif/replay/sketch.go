package replay

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// maxWho is how many of those who were limited most are kept.
const maxWho = 1000

// tops keeps the most frequent of any number of things in bounded memory (space saving): a new one takes the place of the least frequent
// and inherits its count, which is then the most by which its own can be wrong.
type tops struct {
	by   map[string]*top
	heap topHeap
	lost bool // something was dropped, so that not everything is here
}

type top struct {
	key         string
	who, rule   string
	count       int64
	over        int64 // of count: what may have been of others
	first, last time.Time
	at          int // in the heap
}

func newTops() *tops { return &tops{by: map[string]*top{}} }

// add counts one. What it is called is asked only of a new one.
func (t *tops) add(key string, when time.Time, called func() (who, rule string)) {
	one := t.by[key]
	switch {
	case one != nil:
	case len(t.heap) < maxWho:
		one = &top{key: key, first: when}
		one.who, one.rule = called()
		t.by[key] = one
		heap.Push(&t.heap, one)
	default:
		t.lost = true
		one = t.heap[0]
		delete(t.by, one.key)
		t.by[key] = one
		one.key, one.first, one.over = key, when, one.count
		one.who, one.rule = called()
	}
	one.count++
	one.last = when
	heap.Fix(&t.heap, one.at)
}

// list returns them, the most frequent first.
func (t *tops) list() []Limited {
	all := slices.Clone(t.heap)
	slices.SortFunc(all, func(a, b *top) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.who, b.who), cmp.Compare(a.rule, b.rule))
	})
	list := make([]Limited, 0, len(all))
	for _, one := range all {
		list = append(list, Limited{Who: one.who, Rule: one.rule, Requests: one.count, Over: one.over, First: one.first, Last: one.last})
	}
	return list
}

// topHeap has the least frequent first.
type topHeap []*top

func (h topHeap) Len() int           { return len(h) }
func (h topHeap) Less(i, j int) bool { return h[i].count < h[j].count }
func (h topHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push adds one.
func (h *topHeap) Push(one any) {
	one.(*top).at = len(*h)
	*h = append(*h, one.(*top))
}

// Pop takes the last one off. The heap never shrinks, so only package heap asks for it.
func (h *topHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
