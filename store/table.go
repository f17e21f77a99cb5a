package store

// table finds the entries of a shard by their names. It does what a map does, with less of the memory that is far from the processor: a look
// fetches one cell and the entry. As a map, it does not shrink. The zero table is empty.
type table struct {
	cells []cell // as many as a power of two; a name is at its place, or behind it with no empty cell between
	count int
}

// cell is a place in a table. Its tag is one of the two hashes, so that hardly another entry than the one that is looked for is fetched.
type cell struct {
	tag   uint64
	entry *entry // nil: the cell is empty
}

// leastCells is how many cells a table has that is not empty.
const leastCells = 8

// place is where a name belongs. The lowest bits are those of its shard.
func (t *table) place(n name) int { return int(n[0]>>8) & (len(t.cells) - 1) }

// touch fetches the cell where a name belongs. Of several tables these fetches are made at once; those of find wait for each other.
func (t *table) touch(n name) uint64 {
	if t.count == 0 {
		return 0
	}
	return t.cells[t.place(n)].tag
}

// find is the entry of a name, nil if there is none.
func (t *table) find(n name) *entry {
	if t.count == 0 {
		return nil
	}
	for i := t.place(n); ; i = t.next(i) {
		c := &t.cells[i]
		if c.entry == nil || c.tag == n[1] && c.entry.name == n {
			return c.entry
		}
	}
}

// next is the place behind a place.
func (t *table) next(i int) int { return (i + 1) & (len(t.cells) - 1) }

// add puts an entry in, whose name is not there yet. At least a third of the cells stays empty.
func (t *table) add(e *entry) {
	if 3*(t.count+1) > 2*len(t.cells) {
		old := t.cells
		t.cells = make([]cell, max(leastCells, 2*len(old)))
		for _, c := range old {
			if c.entry != nil {
				t.put(c)
			}
		}
	}
	t.put(cell{tag: e.name[1], entry: e})
	t.count++
}

// put fills the first empty cell for a name.
func (t *table) put(c cell) {
	i := t.place(c.entry.name)
	for t.cells[i].entry != nil {
		i = t.next(i)
	}
	t.cells[i] = c
}

// remove takes an entry out, if it is there. Those behind it move up until a cell is empty, so that find meets no gap.
func (t *table) remove(e *entry) {
	if t.count == 0 {
		return
	}
	gap := t.place(e.name)
	for t.cells[gap].entry != e {
		if t.cells[gap].entry == nil {
			return
		}
		gap = t.next(gap)
	}
	for i := t.next(gap); t.cells[i].entry != nil; i = t.next(i) {
		if t.behind(i, t.place(t.cells[i].entry.name)) >= t.behind(i, gap) {
			t.cells[gap] = t.cells[i]
			gap = i
		}
	}
	t.cells[gap] = cell{}
	t.count--
}

// behind is by how many cells a place is behind another one.
func (t *table) behind(i, other int) int { return (i - other) & (len(t.cells) - 1) }
