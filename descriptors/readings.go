package descriptors

import (
	"hash/maphash"
	"slices"

	"github.com/spillway-mesh/spillway/keys"
)

// Servers read one path in different ways. docs/decisions/0020-readings.md has the choices, the servers and the bound.
//
// maxReadings bounds the readings of one path: 6 habits with slashes × 2 with escapes × 2 with params × 3 with dot
// segments, and 3 × 3 of servers that cut params first, each with and without a host. A path that ext_authz refuses has
// up to maxRefusedReadings over RLS: with 5 habits in place of 3 with dot segments, and one reading that ends at a NUL.
const (
	maxReadings        = (6*2*2 + 3) * 3 * 2
	maxRefusedReadings = (6*2*2+3)*5*2 + 1
	maxKeptPath        = 4 << 10 // symbols of a path above which its memory is not kept for the next one
	// symbols of all readings together; a path with more is refused, because each of them costs time
	maxSymbols = 256 << 10
)

// slashHabits are the characters beside / that servers take for a slash. A server of some habits may cut params up to
// the next / before it looks for other slashes.
var slashHabits = [...]struct {
	slashes  traits
	cutFirst bool
}{
	{anySlash, true}, // IIS; Envoy where it unescapes slashes; Tomcat where it allows both
	{0, false},       // routers that compare the path as it came
	// Go, nginx, and others that decode before they route; Tomcat where it decodes slashes
	{escapedSlash, true},
	{backslash, false},                   // URL parsers that follow WHATWG, as Node's
	{backslash | escapedSlash, false},    // WHATWG parsers that decode before they route
	{backslash | escapedBackslash, true}, // Tomcat where it allows backslashes
}

// dotMode is what a server does with dot segments.
type dotMode uint8

const (
	mergeAndResolve dotMode = iota // drops empty segments, then resolves dot segments
	// resolves dot segments, of which .. may remove an empty segment, then drops empty ones
	resolveAndMerge
	leaveDots     // leaves dot segments as they are
	plainMerged   // mergeAndResolve, of the plain dot segments alone and before anything else is read
	plainUnmerged // resolveAndMerge, likewise
)

// choice is one way to read a path. The zero value with anySlash reads as much as possible: all is decoded, cut,
// resolved.
type choice struct {
	slashes     traits // what is a slash beside /
	keepEscapes bool
	keepParams  bool
	cutFirst    bool // params end at the next / only, not at other slashes
	dots        dotMode
	cutHost     bool // the path begins with a host, as in //host/path
	ends        bool // the path ends at its first NUL
}

// readings are the ways in which servers may read one path. The memory is used again by the next take.
type readings struct {
	path    []symbol
	plain   [2][]symbol // path for plainMerged and plainUnmerged
	rest    []symbol    // path behind its host, for one of these two
	choices []choice    // the first is the usual one; none: the path has one reading
	refused bool        // a server that resolves dot segments at another time than others would see another endpoint
	apart   bool        // each reading counts under its own key where a rule counts by endpoint
	tooLong bool        // there would be several, and too much of them, so they are not made
	out     []byte
}

// none is for a request without a path.
func (r *readings) none() {
	r.choices, r.refused, r.apart, r.tooLong = r.choices[:0], false, false, false
}

// load reads a path and returns the reading in which all is decoded, cut and resolved.
func (r *readings) load(path string) string {
	path = cutPath(path)
	r.none()
	if isNormalPath(path) {
		return path
	}
	holds := r.judge(path)
	if r.tooLong {
		r.choices = append(r.choices[:0], choice{slashes: anySlash})
		return r.at(0)
	}
	last := leaveDots
	if r.refused {
		r.resolvePlain(holds)
		last = plainUnmerged
	}
	r.list(holds, last)
	r.apart = r.refused || holds&host != 0 || r.partAtEmpty(holds)
	if r.apart {
		r.dropRepeated()
	}
	return r.at(0)
}

// refuses reports whether ext_authz refuses a path.
func (r *readings) refuses(path string) bool {
	path = cutPath(path)
	if isNormalPath(path) {
		return false
	}
	r.judge(path)
	return r.refused || r.tooLong
}

// judge spells a path, finds out whether it is refused, and returns what it holds.
func (r *readings) judge(path string) traits {
	var holds traits
	r.path, holds = spell(r.path[:0], path)
	r.list(holds, plainUnmerged)
	r.tooLong = r.several() && len(r.path)*len(r.choices) > maxSymbols
	if r.tooLong {
		return holds
	}
	r.refused = holds&(lateDots|nul) != 0 || r.leadElsewhere(holds)
	return holds
}

// several reports whether the path has more than one reading.
func (r *readings) several() bool { return len(r.choices) > 1 }

// at returns a reading by its number.
func (r *readings) at(n int) string { return string(r.render(r.choices[n])) }

// list fills in the choices that matter for a path that holds these, with the modes of dot segments up to last.
func (r *readings) list(holds traits, last dotMode) {
	r.choices = r.choices[:0]
	last = min(last, lastMode(holds))
	var seen [anySlash + 1]bool
	for _, habit := range slashHabits {
		slashes := habit.slashes & holds
		if seen[slashes] {
			continue
		}
		seen[slashes] = true
		for mode := mergeAndResolve; mode <= last; mode++ {
			r.listTexts(holds, choice{slashes: slashes, dots: mode})
			if habit.cutFirst && slashes != 0 && holds&longParams != 0 {
				r.choices = append(r.choices, choice{slashes: slashes, dots: mode, cutFirst: true})
			}
		}
	}
	if holds&host != 0 {
		for _, c := range r.choices {
			c.cutHost = true
			r.choices = append(r.choices, c)
		}
	}
	if holds&nul != 0 {
		r.choices = append(r.choices, choice{slashes: anySlash, ends: true})
	}
}

// lastMode returns the last mode of dot segments that matters for a path that holds these.
func lastMode(holds traits) dotMode {
	switch {
	case holds&plainDots != 0:
		return plainUnmerged
	case holds&lateDots != 0:
		return leaveDots
	}
	return mergeAndResolve
}

// listTexts adds a choice with every choice about escapes and params.
func (r *readings) listTexts(holds traits, c choice) {
	for range 2 {
		for range 2 {
			r.choices = append(r.choices, c)
			if holds&params == 0 {
				break
			}
			c.keepParams = !c.keepParams
		}
		if holds&otherEscape == 0 {
			break
		}
		c.keepEscapes = !c.keepEscapes
	}
}

// leadElsewhere reports whether plain dot segments lead elsewhere when they are resolved before a reading than after
// it: /a%2fb/../c is /c or /a/c.
func (r *readings) leadElsewhere(holds traits) bool {
	if holds&plainDots == 0 || !dotsMayMove(r.path) {
		return false
	}
	r.resolvePlain(holds)
	r.list(holds, plainUnmerged)
	for _, c := range r.choices {
		if c.dots >= leaveDots || c.keepEscapes || c.cutHost {
			continue
		}
		after := string(r.render(c))
		c.dots += plainMerged
		if string(r.render(c)) != after {
			return true
		}
	}
	return false
}

// resolvePlain fills in the path without its plain dot segments.
func (r *readings) resolvePlain(holds traits) {
	if holds&plainDots != 0 {
		r.plain[0] = resolvePlain(r.plain[0][:0], r.path, mergeAndResolve)
		r.plain[1] = resolvePlain(r.plain[1][:0], r.path, resolveAndMerge)
	}
}

// partAtEmpty reports whether plain dot segments lead elsewhere for servers that drop empty segments first: /x//../y is
// /y or /x/y.
func (r *readings) partAtEmpty(holds traits) bool {
	if holds&plainDots == 0 {
		return false
	}
	merged := string(r.render(choice{slashes: anySlash}))
	return string(r.render(choice{slashes: anySlash, dots: resolveAndMerge})) != merged
}

var readingSeed = maphash.MakeSeed()

// dropRepeated keeps one choice of those that make the same reading. Readings are compared by hash, because all of them
// at once may be much memory.
func (r *readings) dropRepeated() {
	var sums [maxRefusedReadings]uint64
	seen := sums[:0]
	r.choices = slices.DeleteFunc(r.choices, func(c choice) bool {
		sum := maphash.Bytes(readingSeed, r.render(c))
		if slices.Contains(seen, sum) {
			return true
		}
		seen = append(seen, sum)
		return false
	})
}

// action is what a reading does with a symbol.
type action uint8

const (
	copySymbol action = iota
	copyEscape
	endSegment
	beginParams
)

// actions returns the action for each symbol. An escaped slash that a reading does not take for a slash stays escaped:
// nothing else distinguishes the two.
func (c choice) actions() (table [2 * escaped]action) {
	table['/'], table['/'|escaped] = endSegment, copyEscape
	if c.keepEscapes {
		for s := symbol(0); s < escaped; s++ {
			if keepsEscape[s] && s != '\\' {
				table[s|escaped] = copyEscape
			}
		}
	}
	if !c.keepParams {
		table[';'], table[';'|escaped] = beginParams, beginParams
	}
	for _, s := range [...]symbol{'\\', '\\' | escaped, '/' | escaped} {
		if traitsOf(s)&c.slashes != 0 {
			table[s] = endSegment
		}
	}
	return table
}

// render returns one reading. It is good until the next one is read.
func (r *readings) render(c choice) []byte {
	path, mode := r.source(c)
	table := c.actions()
	out, start, cut := append(slices.Grow(r.out[:0], len(path)+1), '/'), 1, false
	for _, s := range path {
		act := table[s%(2*escaped)]
		if act == copySymbol {
			if !cut {
				out = append(out, byte(s))
			}
			continue
		}
		if act == endSegment && (s == '/' || !cut || !c.cutFirst) {
			out = append(closeSegment(out, start, mode), '/')
			start, cut = len(out), false
			continue
		}
		cut = cut || act == beginParams
		if !cut {
			out = keys.AppendEscape(out, byte(s))
		}
	}
	r.out = finish(closeSegment(out, start, mode), mode)
	return r.out
}

// finish drops the empty segments that were left for dot segments. A path without segments is a slash.
func finish(out []byte, mode dotMode) []byte {
	if mode == resolveAndMerge {
		out = dropEmpty(out)
	}
	if len(out) == 0 {
		return append(out, '/')
	}
	return out
}

// source returns the symbols that a choice reads and what it does with their dot segments.
func (r *readings) source(c choice) ([]symbol, dotMode) {
	switch {
	case c.cutHost && c.dots > leaveDots:
		r.rest = resolvePlain(r.rest[:0], withoutHost(r.path, c.slashes), c.dots-plainMerged)
		return r.rest, leaveDots
	case c.cutHost:
		return withoutHost(r.path, c.slashes), c.dots
	case c.ends:
		return r.path[:slices.Index(r.path, 0)], c.dots
	case c.dots > leaveDots:
		return r.plain[c.dots-plainMerged], leaveDots
	}
	return r.path, c.dots
}
