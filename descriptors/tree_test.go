package descriptors

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// walkNaive is the reference server's walk as its users know it: texts joined by _, looked up in one map per level.
func walkNaive(nodes []Node, entries []Entry) *Node {
	var at *Node
	for _, e := range entries {
		at = stepNaive(nodes, e)
		if at == nil {
			return nil
		}
		nodes = at.Nodes
	}
	return at
}

func stepNaive(nodes []Node, e Entry) *Node {
	byText := func(text string) *Node {
		for i := range nodes {
			if nodes[i].joined() == text {
				return &nodes[i]
			}
		}
		return nil
	}
	if n := byText(e.Key + "_" + e.Value); n != nil {
		return n
	}
	for i := range nodes {
		if strings.Contains(nodes[i].joined(), "*") && starNaive(nodes[i].joined(), e.Key+"_"+e.Value) {
			return &nodes[i]
		}
	}
	return byText(e.Key)
}

func randomNodes(r *rand.Rand, depth int) []Node {
	if depth == 0 {
		return nil
	}
	var nodes []Node
	seen := map[Entry]bool{}
	for range 1 + r.IntN(5) {
		e := Entry{[]string{"a", "b", "a*", "*"}[r.IntN(4)], []string{"", "", "x", "y", "x*", "*y", "*"}[r.IntN(7)]}
		if seen[e] {
			continue
		}
		seen[e] = true
		n := Node{Key: e.Key, Value: e.Value, Nodes: randomNodes(r, depth-1)}
		if r.IntN(4) > 0 {
			n.Limits = oneLimit
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// TestTreeAgainstTheReferenceWalk: where no key and no value holds a _, both walks find the same node.
func TestTreeAgainstTheReferenceWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 300 / divisor {
		d := Domain{Name: "shop", Tree: randomNodes(r, 3)}
		set, found := Compile([]Domain{d}, Options{})
		if set == nil {
			t.Fatal(found)
		}
		var m Match
		for range 100 {
			entries := make([]Entry, r.IntN(5))
			for i := range entries {
				entries[i] = Entry{[]string{"a", "b", "ab", "c"}[r.IntN(4)],
					[]string{"", "x", "y", "xy", "z", "x*"}[r.IntN(6)]}
			}
			set.Match(&Request{Domain: "shop", Descriptors: []Descriptor{{Entries: entries}}}, &m)
			want := walkNaive(d.Tree, entries)
			if (want != nil && len(want.Limits) > 0) != (len(m.Charges) == 1) {
				t.Fatalf("%v comes to %v, want the node %+v", entries, describe(&m), want)
			}
			if len(m.Charges) == 1 && !strings.HasSuffix("."+m.Terms[0].Effect.Rule, "."+want.joined()) {
				t.Fatalf("%v finds %q, want %q", entries, m.Terms[0].Effect.Rule, want.joined())
			}
		}
	}
}
