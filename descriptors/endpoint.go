package descriptors

import (
	"errors"
	"strings"
)

// patternClass orders patterns from the most to the least specific.
type patternClass uint8

const (
	exactPattern patternClass = iota
	starPattern               // has a *
	deepPattern               // has a **
)

const maxPattern = 1024 // bytes

// pattern is an endpoint pattern, shared by all rules of a domain that name it.
type pattern struct {
	text     string // in its normal form
	class    patternClass
	literals int // bytes other than *
	term     int32
}

// parsePattern reads an endpoint pattern. It is normalised as paths are, so that "search/" means "/search".
func parsePattern(text string) (*pattern, error) {
	err := checkPattern(text)
	if err != nil {
		return nil, err
	}
	normal, ok := NormalizePath(text)
	if !ok {
		return nil, errors.New("endpoint pattern " + quote(text) + " has a NUL, or a dot segment that servers read " +
			"in different ways: write the path that it leads to")
	}
	segments, err := patternSegments(normal)
	if err != nil {
		return nil, err
	}
	p := &pattern{text: "/" + strings.Join(segments, "/")}
	p.literals = len(p.text) - strings.Count(p.text, "*")
	for _, segment := range segments {
		switch {
		case segment == "**":
			p.class = deepPattern
		case strings.Contains(segment, "*"):
			p.class = max(p.class, starPattern)
		}
	}
	return p, nil
}

// checkPattern returns what is wrong with the text of a pattern.
func checkPattern(text string) error {
	if text == "" {
		return errors.New("an endpoint pattern is empty: write a path such as /search, or leave it out")
	}
	if len(text) > maxPattern {
		return errors.New("an endpoint pattern is longer than 1024 bytes: shorten it with * or **")
	}
	if strings.ContainsAny(text, "?#") {
		return errors.New("endpoint pattern " + quote(text) +
			" has a query or fragment, which never count: leave it out")
	}
	if hasBadPercent(text) {
		return errors.New("endpoint pattern " + quote(text) + " has a percent sign without two hex digits after it: " +
			"write a percent sign as %25")
	}
	if strings.Contains(strings.ToUpper(text), "%2A") {
		return errors.New("endpoint pattern " + quote(text) + " has an escaped star, and a star always stands for " +
			"other text: write * in its place")
	}
	return nil
}

func hasBadPercent(text string) bool {
	for i := range len(text) {
		if text[i] == '%' && !isEscape(text[i:]) {
			return true
		}
	}
	return false
}

// patternSegments splits a normal pattern so that ** is a segment of its own. Two ** in a row are one.
func patternSegments(normal string) ([]string, error) {
	if normal == "/" {
		return nil, nil
	}
	var out []string
	for _, segment := range strings.Split(normal[1:], "/") {
		parts, ok := splitDeep(segment)
		if !ok {
			return nil, errors.New("endpoint pattern " + quote(normal) + " has ** inside a segment: write it as a " +
				"segment of its own, as in /a/**/b")
		}
		for _, part := range parts {
			if part == "**" && len(out) > 0 && out[len(out)-1] == "**" {
				continue
			}
			out = append(out, part)
		}
	}
	return out, nil
}

// splitDeep splits a ** off its segment: a** is a*/**, and **b is **/*b. What has text on both sides cannot be split.
func splitDeep(segment string) ([]string, bool) {
	before, after, found := strings.Cut(segment, "**")
	if !found {
		return []string{segment}, true
	}
	after = strings.TrimLeft(after, "*")
	switch {
	case before != "" && after != "" || strings.Contains(after, "**"):
		return nil, false
	case before != "":
		return []string{before + "*", "**"}, true
	case after != "":
		return []string{"**", "*" + after}, true
	}
	return []string{"**"}, true
}

// segmentNode is one segment of the patterns of a domain. Each node is reached over one edge only.
type segmentNode struct {
	exact map[string]*segmentNode
	globs affixes
	deep  *segmentNode // what follows a **
	end   *pattern     // the pattern that ends here
}

func (n *segmentNode) hasChildren() bool { return n.exact != nil || n.globs.table != nil }

// patterns finds the patterns that match a path.
type patterns struct {
	byText map[string]*pattern
	exact  map[string]*pattern
	root   segmentNode
}

// intern files a pattern, or returns the one with the same text.
func (ps *patterns) intern(p *pattern) *pattern {
	if known := ps.byText[p.text]; known != nil {
		return known
	}
	if ps.byText == nil {
		ps.byText, ps.exact = map[string]*pattern{}, map[string]*pattern{}
	}
	ps.byText[p.text] = p
	if p.class == exactPattern {
		ps.exact[p.text] = p
		return p
	}
	node := &ps.root
	for _, segment := range strings.Split(p.text[1:], "/") {
		node = node.child(segment)
	}
	node.end = p
	return p
}

func (n *segmentNode) child(segment string) *segmentNode {
	if segment == "**" {
		if n.deep == nil {
			n.deep = &segmentNode{}
		}
		return n.deep
	}
	if strings.Contains(segment, "*") {
		return n.globs.child(segment)
	}
	if n.exact == nil {
		n.exact = map[string]*segmentNode{}
	}
	if n.exact[segment] == nil {
		n.exact[segment] = &segmentNode{}
	}
	return n.exact[segment]
}

// pathWalk is the memory of one walk.
type pathWalk struct {
	now, next []*segmentNode // nodes reached by all segments so far
	deep      []*segmentNode // nodes behind a **, reached at this or an earlier segment: they stay
	open      bool           // one of deep has more segments to match
	found     []*pattern
}

// match fills w.found with the patterns that match the path. All branches are walked side by side, so the time is the
// number of segments times the nodes alive at once, for any patterns.
func (ps *patterns) match(w *pathWalk, path string) {
	w.now, w.deep, w.found, w.open = w.now[:0], w.deep[:0], w.found[:0], false
	if p := ps.exact[path]; p != nil {
		w.found = append(w.found, p)
	}
	if ps.root.deep == nil && !ps.root.hasChildren() {
		return
	}
	w.now = append(w.now, &ps.root)
	w.enterDeep(&ps.root)
	rest := strings.TrimPrefix(path, "/")
	for rest != "" && (w.open || len(w.now) > 0) {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		w.step(segment)
	}
	for _, node := range w.now {
		if node.end != nil {
			w.found = append(w.found, node.end)
		}
	}
}

// step goes one segment further.
func (w *pathWalk) step(segment string) {
	w.next = w.next[:0]
	for _, node := range w.now {
		w.follow(node, segment)
	}
	for _, node := range w.deep {
		w.follow(node, segment)
	}
	w.now, w.next = w.next, w.now
	for _, node := range w.now {
		w.enterDeep(node)
	}
}

func (w *pathWalk) follow(node *segmentNode, segment string) {
	if child := node.exact[segment]; child != nil {
		w.next = append(w.next, child)
	}
	w.next = node.globs.appendMatches(w.next, segment)
}

// enterDeep enters the ** below a node, once: a pattern that ends in it matches any rest, also an empty one.
func (w *pathWalk) enterDeep(node *segmentNode) {
	deep := node.deep
	if deep == nil {
		return
	}
	for _, known := range w.deep {
		if known == deep {
			return
		}
	}
	w.deep = append(w.deep, deep)
	w.open = w.open || deep.hasChildren()
	if deep.end != nil {
		w.found = append(w.found, deep.end)
	}
}
