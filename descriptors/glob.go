package descriptors

import "strings"

// glob is a text in which each * means any number of bytes. Matching takes time linear in the text.
type glob struct {
	prefix, suffix string   // before the first and after the last *
	middle         []string // between them, none empty
}

// parseGlob reads a text with at least one *.
func parseGlob(text string) glob {
	parts := strings.Split(text, "*")
	g := glob{prefix: parts[0], suffix: parts[len(parts)-1]}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			g.middle = append(g.middle, part)
		}
	}
	return g
}

func (g glob) match(text string) bool {
	if len(text) < len(g.prefix)+len(g.suffix) {
		return false
	}
	if !strings.HasPrefix(text, g.prefix) || !strings.HasSuffix(text, g.suffix) {
		return false
	}
	return g.matchMiddle(text[len(g.prefix) : len(text)-len(g.suffix)])
}

// matchMiddle takes the leftmost place for each part: all that a later place could match, this one can as well.
func (g glob) matchMiddle(text string) bool {
	for _, part := range g.middle {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// affix is what a glob demands of both ends of a text.
type affix struct{ prefix, suffix string }

// affixes finds, among many globs, those that match a text without trying each: globs are filed under their two ends,
// and there are few different lengths of those.
type affixes struct {
	lengths []affixLengths
	table   map[affix][]globChild
}

type affixLengths struct{ prefix, suffix int }

type globChild struct {
	glob glob
	text string
	node *segmentNode
}

// child returns the node of that glob, making it if need be.
func (a *affixes) child(text string) *segmentNode {
	g := parseGlob(text)
	ends := affix{g.prefix, g.suffix}
	for _, known := range a.table[ends] {
		if known.text == text {
			return known.node
		}
	}
	if a.table == nil {
		a.table = map[affix][]globChild{}
	}
	if a.table[ends] == nil {
		a.addLengths(affixLengths{len(g.prefix), len(g.suffix)})
	}
	node := &segmentNode{}
	a.table[ends] = append(a.table[ends], globChild{g, text, node})
	return node
}

func (a *affixes) addLengths(lengths affixLengths) {
	for _, known := range a.lengths {
		if known == lengths {
			return
		}
	}
	a.lengths = append(a.lengths, lengths)
}

// appendMatches appends every node whose glob matches.
func (a *affixes) appendMatches(nodes []*segmentNode, text string) []*segmentNode {
	for _, l := range a.lengths {
		if l.prefix+l.suffix > len(text) {
			continue
		}
		for _, child := range a.table[affix{text[:l.prefix], text[len(text)-l.suffix:]}] {
			if child.glob.matchMiddle(text[l.prefix : len(text)-l.suffix]) {
				nodes = append(nodes, child.node)
			}
		}
	}
	return nodes
}
