package descriptors

import (
	"cmp"
	"slices"
	"time"
)

// candidate is one rule, or one row of the cost table, with at most one of its endpoint patterns.
type candidate struct {
	rank      int                 // place in its group: 0 is the most specific
	asks      [dimensions][]int32 // terms, sorted; one must hold of each dimension that is asked, of entries all
	needs     Scope               // attributes that the request must have
	until     time.Time           // zero: for ever
	pattern   *pattern            // the endpoint pattern of asks, or nil
	rule      *compiledRule       // nil for a row of the cost table
	headAlone bool                // it names HEAD and not GET
	cost      int64               // of a row of the cost table
	written   *Rule               // what rule was compiled from
	at        Pos                 // of the pattern, else of the rule or the row
}

// index finds the most specific candidate of each group. It is built so that a request looks only at candidates of
// which one condition holds already: the one that the fewest others share.
type index struct {
	terms
	groups []group
	filed  [][]posting // by term
	now    func() time.Time
}

// group is a list of candidates of which one is chosen.
type group struct {
	all  []*candidate // in order of rank
	free []*candidate // those without conditions
}

// posting is the candidates of one group under one term.
type posting struct {
	group      int
	candidates []*candidate // in order of rank
}

// addGroup ranks the candidates and returns the number of their group.
func (x *index) addGroup(candidates []*candidate, compare func(a, b *candidate) int) int {
	slices.SortStableFunc(candidates, compare)
	for i, c := range candidates {
		c.rank = i
	}
	x.groups = append(x.groups, group{all: candidates})
	return len(x.groups) - 1
}

// build files all candidates, once every group is there.
func (x *index) build() {
	x.filed = make([][]posting, x.count)
	for i := range x.groups {
		load := make(map[int32]int)
		for _, c := range x.groups[i].all {
			for _, terms := range c.asks {
				for _, id := range terms {
					load[id]++
				}
			}
		}
		for _, c := range x.groups[i].all {
			x.file(i, c, load)
		}
	}
}

func (x *index) file(number int, c *candidate, load map[int32]int) {
	terms := rarest(c, load)
	if terms == nil {
		x.groups[number].free = append(x.groups[number].free, c)
		return
	}
	for _, id := range terms {
		postings := x.filed[id]
		if len(postings) == 0 || postings[len(postings)-1].group != number {
			postings = append(postings, posting{group: number})
		}
		last := &postings[len(postings)-1]
		last.candidates = append(last.candidates, c)
		x.filed[id] = postings
	}
}

// rarest returns the terms under which to file a candidate: those of the dimension whose fullest term is emptiest. Of
// entries, which must all hold, one is enough.
func rarest(c *candidate, load map[int32]int) []int32 {
	var best []int32
	least := 0
	for d, terms := range c.asks {
		if len(terms) == 0 {
			continue
		}
		if dimension(d) == dimEntry {
			rare := slices.MinFunc(terms, func(a, b int32) int { return cmp.Compare(load[a], load[b]) })
			terms = []int32{rare}
		}
		most := 0
		for _, id := range terms {
			most = max(most, load[id])
		}
		if best == nil || most < least {
			best, least = terms, most
		}
	}
	return best
}

// choose fills best with the most specific candidate of each group, or nil, and returns how many it looked at.
func (x *index) choose(f *facts, have Scope, best []*candidate) (looked int) {
	for i := range x.groups {
		best[i] = nil
		for _, c := range x.groups[i].free {
			looked++
			if x.holds(c, f, have) {
				best[i] = c
				break
			}
		}
	}
	for _, id := range f.ids {
		for _, p := range x.filed[id] {
			for _, c := range p.candidates {
				if best[p.group] != nil && best[p.group].rank <= c.rank {
					break
				}
				looked++
				if x.holds(c, f, have) {
					best[p.group] = c
					break
				}
			}
		}
	}
	return looked
}

// holds reports whether the candidate applies.
func (x *index) holds(c *candidate, f *facts, have Scope) bool {
	if have&c.needs != c.needs || f.lifted != 0 && c.lifts(f.lifted) {
		return false
	}
	for d := range dimEntry {
		if len(c.asks[d]) > 0 && !overlap(f.of(d), c.asks[d]) {
			return false
		}
	}
	for _, id := range c.asks[dimEntry] {
		if !f.holds(id) {
			return false
		}
	}
	return c.until.IsZero() || x.now().Before(c.until)
}

// overlap reports whether one of the few facts is among the sorted terms.
func overlap(facts, terms []int32) bool {
	for _, id := range facts {
		if _, found := slices.BinarySearch(terms, id); found {
			return true
		}
	}
	return false
}
