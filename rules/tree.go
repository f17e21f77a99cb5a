package rules

import (
	"math"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// nodes makes a reader for a list of descriptors.
func (d *decoder) nodes(to *[]descriptors.Node) reader {
	return func(n *node) {
		d.each(n, func(item *node) { d.treeNode(item, to) })
	}
}

// treeNode reads one descriptor.
func (d *decoder) treeNode(n *node, to *[]descriptors.Node) {
	node := descriptors.Node{Pos: d.pos(n)}
	var children *field
	if !d.sound(func() { children = d.leaf(n, &node) }) && !d.outlineNode(n, &node) {
		return
	}
	if children != nil {
		d.nodes(&node.Nodes)(children.value)
	}
	*to = append(*to, node)
}

// leaf reads the keys of one descriptor, and returns where its children are. The reference server's keys may be left
// empty, as they may there; ours may not.
func (d *decoder) leaf(n *node, to *descriptors.Node) (children *field) {
	var one, several *node
	d.object(n, map[string]reader{
		"key":             optional(d.text(&to.Key)),
		"value":           optional(d.text(&to.Value)),
		"rate_limit":      func(n *node) { one = n; d.rateLimit(n, to) },
		"rate_limits":     func(n *node) { several = n; d.some(n, d.treeLimit(&to.Limits)) },
		"descriptors":     optional(func(n *node) { children = subtree(n) }),
		"shadow_mode":     optional(d.flag(&to.Shadow)),
		"quota_mode":      optional(d.flag(&to.Quota)),
		"detailed_metric": optional(d.flag(&to.DetailedMetric)),
		"value_to_metric": optional(d.flag(&to.ValueToMetric)),
		"share_threshold": optional(d.flag(&to.ShareThreshold)),
		"metadata":        optional(d.metadata(&to.Metadata)),
		"on_failure":      choice(d, &to.OnFailure, ownFailures),
		"post_paid":       d.flag(&to.PostPaid),
		"reserve":         d.number(&to.Reserve, 1, limit.MaxCost),
		"lease":           d.lease(&to.Lease),
		"response":        d.response(&to.Response),
	})
	n.excludes("rate_limit", "rate_limits")
	if one != nil && several != nil {
		d.fail(several, "rate_limits stands in place of rate_limit; remove one of the two")
	}
	return children
}

// subtree returns where the children of a node are. In the schema they are as the nodes at the top.
func subtree(n *node) *field {
	if n.describes(list) {
		n.accept(schema{"$ref": "#/properties/descriptors"})
	}
	if n.shape != nil {
		return nil
	}
	return &field{value: n}
}

// rateLimit reads the one limit of a descriptor. An empty one means none in the reference server too, but is rarely
// meant.
func (d *decoder) rateLimit(n *node, to *descriptors.Node) {
	if n.describes(scalar) {
		n.accept(nothing())
		return
	}
	if n.isNull() {
		d.warn(n, "rate_limit is empty, so nothing is limited here; remove the key, or give it a unit and "+
			"requests_per_unit")
		return
	}
	d.treeLimit(&to.Limits)(n)
}

// metadata makes a reader for a free map, which becomes what JSON can hold.
func (d *decoder) metadata(to *map[string]any) reader {
	return func(n *node) {
		if n.kind != mapping {
			d.wants(n, "a map")
			return
		}
		if n.describes(mapping) {
			n.accept(schema{"type": "object"})
			return
		}
		*to, _ = d.plain(n).(map[string]any)
	}
}

// plain turns any node into nil, bool, float64, string, []any or map[string]any.
func (d *decoder) plain(n *node) any {
	switch n.kind {
	case list:
		items := make([]any, 0, len(n.items))
		for _, item := range n.items {
			items = append(items, d.plain(item))
		}
		return items
	case mapping:
		fields := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			if f.key.tag != "!!str" {
				d.fail(f.key, "metadata has text for keys, not %s; quote it", f.key.describe())
				continue
			}
			fields[f.key.text] = d.plain(f.value)
		}
		return fields
	}
	return d.plainScalar(n)
}

func (d *decoder) plainScalar(n *node) any {
	value, word := boolWords[strings.ToLower(n.text)]
	switch {
	case n.isNull():
		return nil
	case n.plain && word && n.tag != "!!int":
		return value
	case n.plain && (n.tag == "!!int" || n.tag == "!!float"):
		return d.plainNumber(n)
	}
	return n.text
}

// plainNumber reads any number of YAML; JSON cannot hold infinity and not-a-number.
func (d *decoder) plainNumber(n *node) float64 {
	text := strings.ReplaceAll(n.text, "_", "")
	if whole, err := strconv.ParseInt(strings.TrimPrefix(text, "+"), 0, 64); err == nil {
		return float64(whole)
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		d.fail(n, "metadata cannot hold the number %s; quote it", clip(n.text))
		return 0
	}
	return number
}
