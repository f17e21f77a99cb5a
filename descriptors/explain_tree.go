package descriptors

import "strconv"

// explainTrees adds the nodes that the descriptors of a request meet, and those that others of their level beat.
func (d *CompiledDomain) explainTrees(req *Request, x *Explanation) {
	for i := range req.Descriptors {
		descriptor := &req.Descriptors[i]
		if descriptor.Override != nil {
			if _, ok := descriptor.Override.window(); ok {
				x.Considered = append(x.Considered, Considered{What: "node", Name: RuleOverride, Scope: ScopeDescriptor,
					Descriptor: i, Won: true})
				continue
			}
		}
		d.explainDescriptor(descriptor.Entries, i, x)
	}
}

// explainDescriptor walks down the tree as find does. The last node wins if it is the end of the descriptor and has
// limits.
func (d *CompiledDomain) explainDescriptor(entries []Entry, descriptor int, x *Explanation) {
	n := &d.tree
	for level, e := range entries {
		next := n.next(e)
		if next == nil {
			if level > 0 {
				x.Considered[len(x.Considered)-1].Because = "no node below it matches entry " + strconv.Itoa(level+1) +
					" of the descriptor"
			}
			return
		}
		for _, other := range n.others(e, next) {
			one := other.considered(descriptor)
			one.BeatenBy, one.BeatenAt, one.Because = next.title(), next.at, n.because(e, next)
			x.Considered = append(x.Considered, one)
		}
		one := next.considered(descriptor)
		last := level == len(entries)-1
		one.Won = last && len(next.limits) > 0
		switch {
		case !last:
			one.Because = "is on the way to the next entry"
		case !one.Won:
			one.Because = "has no limit"
		}
		x.Considered = append(x.Considered, one)
		n = next
	}
}

func (n *node) considered(descriptor int) Considered {
	return Considered{What: "node", Name: n.title(), At: n.at, Scope: ScopeDescriptor, Descriptor: descriptor}
}

// title is the name of the node's limit, where it has one limit with a name, else its path.
func (n *node) title() string {
	if len(n.limits) == 1 {
		return n.limits[0].effect.Rule
	}
	return n.dotted()
}

// others are the children that an entry matches too, besides the one that next chose.
func (n *node) others(e Entry, chosen *node) []*node {
	var all []*node
	add := func(child *node) {
		if child != nil && child != chosen {
			all = append(all, child)
		}
	}
	add(n.exact[e])
	for _, child := range n.wild {
		if n.exact[e] == child {
			continue
		}
		text := e.Value
		if child.keyGlob {
			text = e.Key + "_" + e.Value
		}
		if (child.keyGlob || child.key == e.Key) && child.glob.match(text) {
			add(child)
		}
	}
	add(n.bare[e.Key])
	return all
}

// because is why next chose a child.
func (n *node) because(e Entry, chosen *node) string {
	switch {
	case n.exact[e] == chosen:
		return "has the value itself"
	case n.bare[e.Key] == chosen:
		return "has the key"
	}
	return "is the first pattern that matches"
}
