package descriptors

import (
	"slices"
	"strings"
)

// covers reports whether every request that meets the conditions of b meets those of a. It may miss some that do; it
// never reports one that does not.
func (x *index) covers(a, b *candidate) bool {
	if a.pattern != nil && (b.pattern == nil || !a.pattern.covers(b.pattern)) {
		return false
	}
	for d := dimEndpoint + 1; d < dimensions; d++ {
		if len(a.asks[d]) > 0 && !x.implied(d, a.asks[d], b.asks[d]) {
			return false
		}
	}
	return true
}

// implied reports whether what a asks of a kind holds wherever what b asks of it does.
func (x *index) implied(d dimension, a, b []int32) bool {
	switch {
	case d == dimEntry: // all of them must hold
		return within(a, b)
	case d == dimNetwork:
		return len(b) > 0 && x.contain(a, b)
	}
	return len(b) > 0 && within(b, a)
}

// within reports whether each of few is among the sorted many.
func within(few, many []int32) bool {
	for _, id := range few {
		if _, found := slices.BinarySearch(many, id); !found {
			return false
		}
	}
	return true
}

// contain reports whether each of the inner networks lies in one of the outer ones.
func (x *index) contain(outer, inner []int32) bool {
	for _, id := range inner {
		narrow := x.prefixes[id]
		if !slices.ContainsFunc(outer, func(id int32) bool {
			wide := x.prefixes[id]
			return wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
		}) {
			return false
		}
	}
	return true
}

// covers reports whether p surely matches every path that other matches. The * of the other is a byte that only a * can
// match, so that * also matches every later form of it; only ** matches what ** does.
func (p *pattern) covers(other *pattern) bool {
	if p == other || p.text == other.text {
		return true
	}
	wide, narrow := patternParts(p.text), patternParts(other.text)
	// row[j]: the wide segments so far cover the first j of the narrow ones.
	row := make([]bool, len(narrow)+1)
	row[0] = true
	for _, segment := range wide {
		next := make([]bool, len(narrow)+1)
		next[0] = row[0] && segment == "**"
		for j, part := range narrow {
			if segment == "**" {
				next[j+1] = row[j+1] || next[j]
				continue
			}
			next[j+1] = row[j] && part != "**" && coversSegment(segment, part)
		}
		row = next
	}
	return row[len(narrow)]
}

func patternParts(text string) []string {
	if text == "/" {
		return nil
	}
	return strings.Split(text[1:], "/")
}

func coversSegment(wide, narrow string) bool {
	if !hasStar(wide) {
		return wide == narrow
	}
	return parseGlob(wide).match(narrow)
}

// asked fills f with terms under which everything that covers b is filed: the patterns that may cover its pattern, and
// of each other kind of condition one value that all of them must have.
func (x *index) asked(f *facts, b *candidate) {
	f.reset(int(x.count))
	if b.pattern != nil {
		x.patterns.match(&f.walk, b.pattern.text)
		for _, p := range f.walk.found {
			f.addFact(p.term)
		}
		f.addFact(b.pattern.term)
	}
	for d := dimEndpoint + 1; d < dimensions; d++ {
		switch {
		case len(b.asks[d]) == 0:
		case d == dimNetwork:
			x.gatherNetworks(f, x.prefixes[b.asks[d][0]])
		case d == dimEntry:
			for _, id := range b.asks[d] {
				f.addFact(id)
			}
		default:
			f.addFact(b.asks[d][0])
		}
	}
}

// cover returns the first candidate of a group, by rank, that covers b and for which fits holds, or nil. The facts are
// those that asked gathers for b.
func (x *index) cover(f *facts, group int, b *candidate, fits func(a *candidate) bool) *candidate {
	var best *candidate
	try := func(candidates []*candidate) {
		for _, a := range candidates {
			if best != nil && best.rank <= a.rank {
				return
			}
			if fits(a) && x.covers(a, b) {
				best = a
				return
			}
		}
	}
	try(x.groups[group].free)
	for _, id := range f.ids {
		for _, p := range x.filed[id] {
			if p.group == group {
				try(p.candidates)
			}
		}
	}
	return best
}
