package rules

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	maxDepth    = 200     // levels of lists and maps within each other
	maxExpanded = 100_000 // values that aliases may repeat
)

// kind is the shape of a node.
type kind uint8

const (
	scalar kind = iota
	list
	mapping
)

// node is one value of a file with aliases and merge keys resolved. Nodes are shared by aliases and never changed.
type node struct {
	line, column int
	kind         kind
	label        string  // the key that it stands under, for messages
	item         bool    // it is an item of a list under that key
	tag          string  // of a scalar: !!str, !!int, ...
	plain        bool    // a scalar without quotes
	text         string  // of a scalar, as written
	items        []*node // of a list
	fields       []field // of a mapping, without duplicates
	size         int     // nodes in all, those that aliases repeat included
	height       int     // levels in all
	shape        *shape  // not nil: the node holds nothing and gathers what its reader accepts
}

// field is one key of a mapping with its value.
type field struct{ key, value *node }

// isNull reports whether nothing was written.
func (n *node) isNull() bool { return n.kind == scalar && n.tag == "!!null" }

// isNumber reports whether a number was written, without quotes.
func (n *node) isNumber() bool {
	return n.kind == scalar && n.plain && (n.tag == "!!int" || n.tag == "!!float")
}

// resolver turns the YAML library's nodes into ours.
type resolver struct {
	d        *decoder
	anchors  map[*yaml.Node]*node // nil while the anchored node is being resolved
	expanded int                  // values repeated by aliases so far
	failed   bool                 // the file is not worth decoding further
}

// resolve returns the node behind an alias, or an empty one if that is impossible.
func (r *resolver) resolve(y *yaml.Node, label string, depth int) *node {
	n := &node{line: y.Line, column: y.Column, label: label, tag: "!!null", size: 1, height: 1}
	if r.failed {
		return n
	}
	if depth > maxDepth {
		r.fail(n, fmt.Sprintf("lists and maps are nested more than %d deep; flatten them", maxDepth))
		return n
	}
	if y.Kind == yaml.AliasNode {
		return r.alias(y, n, depth)
	}
	if y.Anchor != "" {
		r.anchors[y] = nil
		defer func() { r.anchors[y] = n }()
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind, n.tag = list, y.ShortTag()
		for _, item := range y.Content {
			n.appendItem(r.resolve(item, label, depth+1))
		}
	case yaml.MappingNode:
		n.kind, n.tag = mapping, y.ShortTag()
		r.mapping(y, n, depth)
	default:
		n.tag, n.text = y.ShortTag(), y.Value
		n.plain = y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	}
	r.checkTag(n)
	return n
}

// appendItem puts a resolved item into a list.
func (n *node) appendItem(item *node) {
	item.item = true
	n.items = append(n.items, item)
	n.grow(item)
}

// grow counts a part of n.
func (n *node) grow(part *node) {
	n.size += part.size
	n.height = max(n.height, part.height+1)
}

// alias returns what the alias names, under the label of the place where it is used.
func (r *resolver) alias(y *yaml.Node, at *node, depth int) *node {
	target := r.anchors[y.Alias]
	if target == nil {
		r.fail(at, fmt.Sprintf("the alias *%s stands inside what it names; write the value out", y.Value))
		return at
	}
	r.expanded += target.size
	if r.expanded > maxExpanded {
		r.fail(at, fmt.Sprintf("aliases repeat more than %d values; write fewer of them", maxExpanded))
		return at
	}
	if depth+target.height > maxDepth {
		r.fail(at, fmt.Sprintf("aliases nest lists and maps more than %d deep; flatten them", maxDepth))
		return at
	}
	used := *target
	used.label, used.item = at.label, false
	return &used
}

// mapping resolves the keys of a map: its own first, then what merge keys bring.
func (r *resolver) mapping(y *yaml.Node, n *node, depth int) {
	seen := make(map[string]int, len(y.Content)/2)
	var merges []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := r.resolve(y.Content[i], "", depth+1)
		value := r.resolve(y.Content[i+1], key.text, depth+1)
		n.grow(value)
		if key.kind != scalar {
			r.d.fail(key, "a key must be text, not %s", key.describe())
			continue
		}
		if line, twice := seen[key.text]; twice {
			r.d.fail(key, "the key %q stands here twice, first in line %d; remove one", key.text, line)
			continue
		}
		seen[key.text] = key.line
		if key.tag == "!!merge" {
			merges = append(merges, value)
			continue
		}
		n.fields = append(n.fields, field{key, value})
	}
	for _, merge := range merges {
		r.merge(n, merge, seen)
	}
}

// merge adds the keys of a merged map, or of a list of them, that are not there yet.
func (r *resolver) merge(n, from *node, seen map[string]int) {
	if from.kind == list {
		for _, item := range from.items {
			if item.kind != mapping {
				r.d.fail(item, "<< wants maps to merge, not %s", item.describe())
				continue
			}
			r.merge(n, item, seen)
		}
		return
	}
	if from.kind != mapping {
		r.d.fail(from, "<< wants a map to merge, not %s", from.describe())
		return
	}
	for _, f := range from.fields {
		if _, there := seen[f.key.text]; !there {
			seen[f.key.text] = f.key.line
			n.fields = append(n.fields, f)
		}
	}
}

// checkTag refuses explicit tags that mean nothing here.
func (r *resolver) checkTag(n *node) {
	switch n.tag {
	case "!!str", "!!int", "!!bool", "!!float", "!!null", "!!timestamp", "!!merge", "!!map", "!!seq":
	default:
		r.d.fail(n, "the tag %s is not known here; remove it", n.tag)
		n.tag = "!!str"
	}
}

func (r *resolver) fail(at *node, text string) {
	r.failed = true
	r.d.fail(at, "%s", text)
}

// title names the place of the node in a message.
func (n *node) title() string {
	if n.item {
		return "an item of " + n.label
	}
	return n.label
}

// holdsKeys reports whether the node is the section of API keys, or one of them.
func (n *node) holdsKeys() bool { return n.label == "api_keys" || n.label == "keys" }

// describe names the node's value in a message.
func (n *node) describe() string {
	switch {
	case n.kind == list:
		return "a list"
	case n.kind == mapping:
		return "a map"
	case n.isNull():
		return "nothing"
	case n.tag == "!!int", n.tag == "!!float":
		return "the number " + clip(n.text)
	case n.tag == "!!bool":
		return n.text
	case n.holdsKeys():
		return "a text" // which may be a key itself, and is not shown
	}
	return fmt.Sprintf("the text %q", clip(n.text))
}

// clip keeps quoted input short in messages.
func clip(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	for i := range text {
		if i >= most {
			return text[:i] + "…"
		}
	}
	return text
}

// get returns the value of a key of a map, or nil.
func (n *node) get(key string) *node {
	for _, f := range n.fields {
		if f.key.text == key {
			return f.value
		}
	}
	return nil
}
