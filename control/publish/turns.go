package publish

import (
	"slices"
	"sync"

	"github.com/spillway-mesh/spillway/records"
)

// turns lets changes and pages of a walk write to Redis one at a time. A change that waits goes before all pages that wait. A page was read
// before it is written: it leaves out what was changed since.
type turns struct {
	mu      sync.Mutex // guards all below
	free    *sync.Cond // signaled when busy or waiting changes
	busy    bool       // one writes
	waiting int        // changes
	clock   uint64
	pages   map[uint64]bool             // that are read or wait, by when they began
	changed map[records.Identity]uint64 // what was changed while there are pages, and when
}

func newTurns() *turns {
	t := &turns{pages: map[uint64]bool{}, changed: map[records.Identity]uint64{}}
	t.free = sync.NewCond(&t.mu)
	return t
}

// change calls write, which reads some identities from the database and writes them to Redis.
func (t *turns) change(ids []records.Identity, write func() error) error {
	t.mu.Lock()
	t.waiting++
	for t.busy {
		t.free.Wait()
	}
	t.waiting--
	t.busy = true
	t.clock++
	if len(t.pages) > 0 {
		for _, id := range ids {
			t.changed[id] = t.clock
		}
	}
	t.mu.Unlock()
	defer t.leave()
	return write()
}

// begin begins a page, before it is read from the database. It has to be ended.
func (t *turns) begin() (page uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	t.pages[t.clock] = true
	return t.clock
}

// end ends a page, and forgets changes that no page has to know of.
func (t *turns) end(page uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pages, page)
	first := t.clock + 1
	for other := range t.pages {
		first = min(first, other)
	}
	for id, at := range t.changed {
		if at < first {
			delete(t.changed, id)
		}
	}
}

// write calls write with what a page has to write.
func (t *turns) write(page uint64, found []*records.Difference, write func([]*records.Difference) error) error {
	t.mu.Lock()
	for t.busy || t.waiting > 0 {
		t.free.Wait()
	}
	t.busy = true
	found = slices.DeleteFunc(found, func(d *records.Difference) bool { return t.changed[d.Identity] > page })
	t.mu.Unlock()
	defer t.leave()
	return write(found)
}

// leave lets the next one write.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	t.free.Broadcast()
}
