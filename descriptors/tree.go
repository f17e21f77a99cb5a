package descriptors

import (
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// node is one level of a compiled descriptor tree. docs/decisions/0004-tree-matching.md explains how a descriptor walks
// it.
type node struct {
	// children with a value, patterns included: a value that spells a pattern out is that pattern
	exact map[Entry]*node
	wild  []*node          // children with a * in key or value, in the order in which they were declared
	bare  map[string]*node // children without a value

	at         Pos
	key, value string
	keyGlob    bool // the key has a *: glob is about key and value joined by _, else about the value alone
	glob       glob
	shared     bool // one counter for all that the pattern matches

	path      []*node // from the first level to this one
	pathText  string  // the path of its keys, unless a key of the path depends on the request
	limits    []treeLimit
	postPaid  bool
	reserve   int64 // of a post-paid one; 0: none
	valueName bool  // the metric has the value at run time
	detailed  bool  // the metric has all values at run time
}

// treeLimit is one limit of a leaf.
type treeLimit struct {
	effect    *Effect
	unlimited bool
	replaces  []string
	tail      string // end of its key
	level     string // its own level of the metric where a leaf has several limits
	calendar  *calendar
}

// descend returns the node that the last entry matches, or nil. It does not go back: a dead end below a match is the
// end.
func (n *node) descend(entries []Entry) *node {
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		n = n.next(e)
		if n == nil {
			return nil
		}
	}
	return n
}

// next returns the child that an entry matches: by value, else the first pattern declared, else by key alone.
func (n *node) next(e Entry) *node {
	if child := n.exact[e]; child != nil {
		return child
	}
	joined := ""
	for _, child := range n.wild {
		if !child.keyGlob {
			if child.key == e.Key && child.glob.match(e.Value) {
				return child
			}
			continue
		}
		if joined == "" {
			joined = e.Key + "_" + e.Value
		}
		if child.glob.match(joined) {
			return child
		}
	}
	return n.bare[e.Key]
}

// level is the node's level in the reference server's metric key.
func (n *node) level() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "_" + n.value
}

// dotted is the path of the node as the reference server writes it.
func (n *node) dotted() string { return strings.Join(n.levels(), ".") }

func (n *node) levels() []string {
	levels := make([]string, len(n.path))
	for i, step := range n.path {
		levels[i] = step.level()
	}
	return levels
}

// isDynamic reports whether the metric of the node's limits depends on the request.
func (n *node) isDynamic() bool {
	return n.detailed || slices.ContainsFunc(n.path, func(step *node) bool { return step.valueName })
}

// metric returns the levels of the metric key for one descriptor. A shared level always shows its pattern.
func (n *node) metric(entries []Entry, own string) []string {
	levels := make([]string, 0, len(n.path)+1)
	for i, step := range n.path {
		named := n.detailed || step.valueName && entries[i].Value != ""
		if !named || step.shared {
			levels = append(levels, step.level())
			continue
		}
		levels = append(levels, entries[i].Key+"_"+entries[i].Value)
	}
	if own != "" {
		levels = append(levels, own)
	}
	return levels
}

// appendPath appends the keys of a path. Where a pattern shares one counter, its own key replaces the client's.
func appendPath(b []byte, path []*node, entries []Entry) []byte {
	from := len(b)
	for i := range entries {
		if i > 0 {
			b = append(b, '/')
		}
		key := entries[i].Key
		if path != nil && path[i].shared {
			key = path[i].key
		}
		b = keys.AppendPathPart(b, key)
	}
	return keys.AppendSection(b, from)
}

// treeValues returns the identity of a descriptor: its values, with the pattern for a shared one.
func treeValues(values []keys.Value, path []*node, entries []Entry) []keys.Value {
	values = values[:0]
	for i, e := range entries {
		v := keys.Value{Text: e.Value}
		if path != nil && path[i].shared {
			v = keys.Value{Text: path[i].value, Shared: true}
		}
		values = append(values, v)
	}
	return values
}

// appendTreeHead appends a tree's key up to its limit. A nil path is an override's: every level is as the client sent
// it.
func (d *CompiledDomain) appendTreeHead(s *scratch, n *node, entries []Entry) {
	var path []*node
	if n != nil {
		path = n.path
	}
	s.values = treeValues(s.values, path, entries)
	s.key = append(s.key[:0], d.head...)
	s.key = d.keys.AppendValues(s.key, s.values)
	s.key = append(s.key, d.seal...)
	s.key = append(s.key, ':')
	if n != nil && n.pathText != "" {
		s.key = append(s.key, n.pathText...)
		return
	}
	s.key = appendPath(s.key, path, entries)
}

// findLeaves finds each descriptor's node, and returns which of them feed the tree alone.
func (d *CompiledDomain) findLeaves(req *Request, m *Match) {
	s := &m.scratch
	s.nodes = append(s.nodes[:0], make([]*node, len(req.Descriptors))...)
	s.attrs.skip = nil
	s.replaced = s.replaced[:0]
	for i := range req.Descriptors {
		descriptor := &req.Descriptors[i]
		if descriptor.Override != nil {
			if _, ok := descriptor.Override.window(); ok {
				continue
			}
			m.BadLimits++
		}
		n := d.tree.descend(descriptor.Entries)
		if n == nil || len(n.limits) == 0 {
			continue
		}
		s.nodes[i] = n
		s.addReplaced(n)
		if n.postPaid {
			s.skipDescriptor(i, len(req.Descriptors))
		}
	}
}

func (s *scratch) addReplaced(n *node) {
	for i := range n.limits {
		for _, name := range n.limits[i].replaces {
			if !slices.Contains(s.replaced, name) {
				s.replaced = append(s.replaced, name)
			}
		}
	}
}

func (s *scratch) skipDescriptor(i, count int) {
	if s.attrs.skip == nil {
		s.skip = append(s.skip[:0], make([]bool, count)...)
		s.attrs.skip = s.skip
	}
	s.attrs.skip[i] = true
}

// chargeTrees adds what overrides and trees charge, descriptor by descriptor.
func (d *CompiledDomain) chargeTrees(req *Request, m *Match) {
	s := &m.scratch
	for i := range req.Descriptors {
		n := s.nodes[i]
		if n != nil && (req.Part != Over || n.postPaid) {
			d.chargeLeaf(req, m, n, i)
		}
		if n != nil {
			continue
		}
		if o := req.Descriptors[i].Override; o != nil {
			d.chargeOverride(req, m, o, i)
		}
	}
}

func (d *CompiledDomain) chargeLeaf(req *Request, m *Match, n *node, i int) {
	s, entries := &m.scratch, req.Descriptors[i].Entries
	headed := 0
	for j := range n.limits {
		l := &n.limits[j]
		term := Term{Effect: l.effect, Descriptor: i, Metric: l.effect.Metric}
		if l.effect.Dynamic {
			term.Metric = n.metric(entries, l.level)
		}
		if l.unlimited {
			m.Unlimited = append(m.Unlimited, term)
			continue
		}
		if l.effect.Name != "" && slices.Contains(s.replaced, l.effect.Name) {
			continue
		}
		if headed == 0 {
			d.appendTreeHead(s, n, entries)
			headed = len(s.key)
		}
		s.key = append(s.key[:headed], l.tail...)
		op, cost := req.spends(i, 1, n.postPaid)
		op, cost = reserving(n.reserve, op, cost)
		each := d.ChargeDenied && !(n.reserve > 0 && op == limit.Spend) // a reservation that does not fit takes nothing
		m.addCharge(term, limit.Charge{Key: string(s.key), Limit: l.calendar.limit(l.effect), Cost: cost, Op: op,
			Mode: l.effect.Mode, Each: each})
	}
}
