package rules

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
)

// The JSON Schema of a rule file is asked of the decoder: its readers get nodes that describe what is accepted in place
// of holding a value. What reads a map, a list, a word of a table, a number or a text notes that, so a new key is in
// the schema as soon as it is read. A reader that looks at the text of a node itself has to note first what it accepts.

// schema is a JSON Schema, or a part of one.
type schema = map[string]any

// shape gathers what a reader accepts of a node.
type shape struct{ accepted []schema }

// describes reports whether the node is there to gather what is accepted of this kind. There is nothing to read from it
// then.
func (n *node) describes(k kind) bool { return n.shape != nil && n.kind == k }

// accept notes what a reader accepts of a node that describes it.
func (n *node) accept(s schema) { n.shape.accepted = append(n.shape.accepted, s) }

// describe returns what a reader accepts: it reads a node of each kind.
func describe(read reader) schema {
	var all []schema
	for _, k := range []kind{scalar, list, mapping} {
		n := &node{kind: k, shape: &shape{}, plain: true}
		read(n)
		all = append(all, n.shape.accepted...)
	}
	return anyOf(all...)
}

// anyOf is one of several schemas. Choices within choices are one list.
func anyOf(all ...schema) schema {
	var flat []schema
	known := map[string]bool{}
	for _, s := range all {
		parts, nested := s["anyOf"].([]schema)
		if !nested {
			parts = []schema{s}
		}
		for _, part := range parts {
			if text := string(marshal(part)); !known[text] {
				known[text] = true
				flat = append(flat, part)
			}
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return schema{"anyOf": flat}
}

// describeObject notes a map with known keys.
func (n *node) describeObject(keys map[string]reader) {
	properties := schema{}
	for key, read := range keys {
		properties[key] = describe(read)
	}
	n.accept(schema{"type": "object", "properties": properties, "additionalProperties": false})
}

// describeTable notes a map whose keys the user chooses.
func (n *node) describeTable(read func(key, value *node)) {
	names := &node{shape: &shape{}, plain: true}
	values := describe(func(value *node) { read(names, value) })
	s := schema{"type": "object", "additionalProperties": values}
	if len(names.shape.accepted) > 0 {
		s["propertyNames"] = anyOf(names.shape.accepted...)
	}
	n.accept(s)
}

// describeList notes a list of at least so many items.
func (n *node) describeList(read reader, least int) {
	s := schema{"type": "array", "items": describe(read)}
	if least > 0 {
		s["minItems"] = least
	}
	n.accept(s)
}

// missing returns those of the keys that a map lacks. In the schema it must have them.
func (d *decoder) missing(n *node, keys ...string) []string {
	if n.shape != nil {
		if last := len(n.shape.accepted) - 1; last >= 0 {
			n.shape.accepted[last]["required"] = keys
		}
		return nil
	}
	return slices.DeleteFunc(keys, func(key string) bool { return n.get(key) != nil })
}

// excludes notes that of two keys a map may have one.
func (n *node) excludes(one, other string) {
	if n.shape == nil || len(n.shape.accepted) == 0 {
		return
	}
	last := n.shape.accepted[len(n.shape.accepted)-1]
	last["not"] = schema{"required": []string{one, other}}
}

// matching is text of a form.
func matching(pattern string) schema {
	return schema{"type": "string", "pattern": "^(" + pattern + ")$"}
}

// plainText is text. Without quotes, whole numbers and booleans are text as well.
func plainText(least int) schema {
	s := schema{"type": []string{"string", "integer", "boolean"}}
	if least > 0 {
		s["minLength"] = least
	}
	return s
}

// nothing is a key without a value.
func nothing() schema { return schema{"type": "null"} }

// wholeNumber is a number between least and most, also with underscores, which make it text in other YAML libraries.
func wholeNumber(least, most int64) schema {
	return anyOf(schema{"type": "integer", "minimum": least, "maximum": most}, matching(`-?[1-9][0-9]*(_[0-9]+)+`))
}

// oneWord is a word of a table.
func oneWord[T any](words map[string]T) schema { return schema{"enum": sorted(words)} }

// anyCase is the pattern of words in upper case, lower case or both.
func anyCase(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteByte('|')
		}
		for _, letter := range word {
			b.WriteString("[" + strings.ToLower(string(letter)) + strings.ToUpper(string(letter)) + "]")
		}
	}
	return b.String()
}

// trueOrFalse is a boolean, also one of the words that are text in other YAML libraries.
func trueOrFalse() schema {
	words := slices.DeleteFunc(sorted(boolWords), func(word string) bool { return word == "true" || word == "false" })
	return anyOf(schema{"type": "boolean"}, matching(anyCase(words)))
}

// durationPattern is the pattern of a duration: its units in their order.
func durationPattern() string {
	var b strings.Builder
	b.WriteString("(?=[0-9])(?![0dhms]*$)") // not empty, and not 0
	for _, unit := range units {
		b.WriteString("([0-9]+" + unit.name + ")?")
	}
	return b.String()
}

// countPattern is the pattern of a count.
const countPattern = `(0|[1-9][0-9]*(_[0-9]+)*)`

// instantPattern is the pattern of a point in time.
const instantPattern = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`

// Schema returns the JSON Schema of a rule file, for editors. The decoder is the judge: it also knows what no schema
// can express, such as keys that exclude each other.
var Schema = sync.OnceValue(func() []byte {
	d := &decoder{describing: true}
	root := maps.Clone(describe(d.root))
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Spillway rule file"
	var text bytes.Buffer
	err := json.Indent(&text, marshal(root), "", "  ")
	if err != nil {
		panic(err) // of what was marshalled before
	}
	return append(text.Bytes(), '\n')
})

// marshal writes JSON without escapes for HTML.
func marshal(s any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(s)
	if err != nil {
		panic(err) // maps, lists, texts and numbers can always be written
	}
	return bytes.TrimSpace(text.Bytes())
}
