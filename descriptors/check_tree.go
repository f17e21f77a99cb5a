package descriptors

import (
	"strings"
)

// maxCompared is the largest level of a tree whose patterns are compared with each other: the time grows with the
// square of their number.
const maxCompared = 300

// nodes checks one level of a tree, below a dotted path.
func (c *checker) nodes(above string, nodes []Node) {
	seen := map[Entry]bool{}
	for i := range nodes {
		n := &nodes[i]
		path := above + "." + n.joined()
		if n.Key == "" {
			c.fail(n.Pos, "descriptor has empty key, below %q: give it a key", above)
		}
		if seen[Entry{n.Key, n.Value}] {
			c.fail(n.Pos, "duplicate descriptor composite key '%s': keep one of them", path)
		}
		seen[Entry{n.Key, n.Value}] = true
		if n.ShareThreshold && !hasStar(n.Key) && !hasStar(n.Value) {
			c.fail(n.Pos, "share_threshold without a wildcard in '%s': add a * to the value, or remove share_threshold",
				path)
		}
		c.limits(n.Pos, n.Limits)
		c.leaf(n, path)
		c.response(n.Pos, n.Response)
		if len(nodes) <= maxCompared {
			c.swallowed(nodes, i, path)
		}
		c.nodes(path, n.Nodes)
	}
}

// leaf checks what only limits of a tree can have.
func (c *checker) leaf(n *Node, path string) {
	for i := range n.Limits {
		l := &n.Limits[i]
		at := l.Pos.or(n.Pos)
		if l.CountUnset && !l.Unlimited {
			c.warn(at, "requests_per_unit is missing in '%s', which means 0 and refuses everything: write it", path)
		}
		if n.PostPaid && !l.Unlimited && !l.Algorithm.Lends() {
			c.fail(at, "post_paid in '%s' needs algorithm: token_bucket", path)
		}
		if !l.Unlimited {
			c.reserve(at, n.Reserve, n.PostPaid, l, "'"+path+"'")
		}
		c.replaces(at, l, path)
	}
	if n.PostPaid && len(n.Limits) == 0 {
		c.warn(n.Pos, "post_paid in '%s' has no effect without a rate_limit: add one, or remove it", path)
	}
}

func (c *checker) replaces(at Pos, l *Limit, path string) {
	for _, r := range l.Replaces {
		switch r.Name {
		case "":
			c.fail(r.Pos.or(at), "should not have an empty replaces entry, in '%s': name a limit, or remove it", path)
		case l.Name:
			c.fail(r.Pos.or(at), "replaces should not contain name of same descriptor, in '%s': remove %q", path,
				r.Name)
		}
	}
}

// swallowed warns of a pattern that an earlier one of its level leaves nothing to, and of a bare key that any does.
func (c *checker) swallowed(nodes []Node, i int, path string) {
	n, tried := &nodes[i], nodes[:i]
	switch {
	case hasStar(n.Key) || hasStar(n.Value):
	case n.Value == "":
		tried = nodes
	default:
		return
	}
	for j := range tried {
		if tried[j].swallows(n) {
			c.warn(n.Pos, "'%s' can never apply: '%s' is tried before it and matches all of it: swap them, or "+
				"remove one", path, tried[j].joined())
			return
		}
	}
}

// swallows reports whether a pattern surely matches all that another node does. The * of the other is a byte that only
// a * can match, so a * matches every later form of it as well.
func (n *Node) swallows(other *Node) bool {
	switch {
	case hasStar(n.Key):
		if other.Value == "" && !hasStar(other.Key) {
			return parseGlob(n.joined()).match(other.Key + "_*")
		}
		return parseGlob(n.joined()).match(other.joined())
	case hasStar(n.Value):
		if hasStar(other.Key) || n.Key != other.Key {
			return false
		}
		if other.Value == "" {
			return strings.Trim(n.Value, "*") == ""
		}
		return parseGlob(n.Value).match(other.Value)
	}
	return false
}

// joined is the node's level as the reference server writes it.
func (n *Node) joined() string {
	if n.Value == "" {
		return n.Key
	}
	return n.Key + "_" + n.Value
}
