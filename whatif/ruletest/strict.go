package ruletest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/rules"
)

// Paths is one path or a list of them.
type Paths = Strings

// Strings is one text or a list of texts.
type Strings []string

// Duration is a duration as rule files write it.
type Duration time.Duration

// String writes it as short as a rule file does.
func (d Duration) String() string {
	text := time.Duration(d).String()
	for _, empty := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, empty) {
			text = strings.TrimSuffix(text, empty[1:])
		}
	}
	return text
}

// Instant is a point in time, in RFC 3339.
type Instant struct{ time.Time }

// decoder reads nodes of YAML into values by their types. It refuses keys without a field in the struct, and gathers
// all that is wrong.
type decoder struct {
	path  string
	wrong []error
}

// reader is a type that reads a node by itself.
type reader interface {
	read(d *decoder, n *yaml.Node)
}

// decodeFile reads a text into what to points to.
func decodeFile(path string, text []byte, to any) error {
	var root yaml.Node
	err := yaml.Unmarshal(text, &root)
	if err != nil {
		problem := strings.TrimPrefix(err.Error(), "yaml: ")
		at, known := strings.CutPrefix(problem, "line ")
		if !known {
			at = "1: " + problem
		}
		return errors.New(path + ":" + at)
	}
	d := decoder{path: path}
	if len(root.Content) > 0 {
		d.decode(root.Content[0], reflect.ValueOf(to).Elem())
	}
	return errors.Join(d.wrong...)
}

func (d *decoder) refuse(n *yaml.Node, format string, args ...any) {
	d.wrong = append(d.wrong, fmt.Errorf("%s:%d:%d: %s", d.path, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

// kinds are what nodes are called.
var kinds = map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}

// wants refuses a node that is something else than it must be.
func (d *decoder) wants(n *yaml.Node, what string) {
	d.refuse(n, "this wants %s, not %s", what, cmp.Or(kinds[n.Kind], fmt.Sprintf("%q", n.Value)))
}

// scalars are what single values of Go are called.
var scalars = map[reflect.Kind]string{
	reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Uint64: "a whole number from 0",
	reflect.Bool: "true or false", reflect.String: "a text",
}

func (d *decoder) decodeList(n *yaml.Node, to reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wants(n, "a list")
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
	for i, one := range n.Content {
		d.decode(one, to.Index(i))
	}
}

// decode reads a node. A null leaves the value as it is.
func (d *decoder) decode(n *yaml.Node, to reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if own, is := to.Addr().Interface().(reader); is {
		own.read(d, n)
		return
	}
	switch kind := to.Kind(); {
	case kind == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.decode(n, to.Elem())
	case kind == reflect.Struct:
		d.decodeStruct(n, to)
	case kind == reflect.Slice:
		d.decodeList(n, to)
	case kind == reflect.Map:
		d.decodeMap(n, to)
	case n.Kind != yaml.ScalarNode || n.Decode(to.Addr().Interface()) != nil:
		d.wants(n, scalars[kind])
	}
}

// members calls f with the members of a mapping, and refuses keys that are there twice.
func (d *decoder) members(n *yaml.Node, f func(key, value *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			d.refuse(key, "the key %q is there twice", key.Value)
		}
		seen[key.Value] = true
		f(key, n.Content[i+1])
	}
}

// decodeMap reads a mapping with any keys.
func (d *decoder) decodeMap(n *yaml.Node, to reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.wants(n, "a mapping")
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	d.members(n, func(key, value *yaml.Node) {
		one := reflect.New(to.Type().Elem()).Elem()
		d.decode(value, one)
		to.SetMapIndex(reflect.ValueOf(key.Value), one)
	})
}

// decodeStruct reads a mapping whose keys are known. The field Line gets the line where it begins.
func (d *decoder) decodeStruct(n *yaml.Node, to reflect.Value) {
	known := keysOf(to.Type())
	if n.Kind != yaml.MappingNode {
		d.refuse(n, "a mapping with some of %s is wanted here", strings.Join(known, ", "))
		return
	}
	d.members(n, func(key, value *yaml.Node) {
		at := slices.Index(known, key.Value)
		if at < 0 {
			d.refuse(key, "unknown key %q: %s", key.Value, rules.Suggest(key.Value, known))
			return
		}
		for i := range to.NumField() {
			if to.Type().Field(i).Tag.Get("yaml") == key.Value {
				d.decode(value, to.Field(i))
			}
		}
	})
	if line := to.FieldByName("Line"); line.IsValid() {
		line.SetInt(int64(n.Line))
	}
}

// keysOf are the keys that a struct has fields for.
func keysOf(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		if key := of.Field(i).Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

// read reads a text or a list of texts.
func (s *Strings) read(d *decoder, n *yaml.Node) {
	list := []string{n.Value}
	if n.Kind != yaml.ScalarNode {
		d.decode(n, reflect.ValueOf(&list).Elem())
	}
	*s = list
}

// read reads a duration.
func (t *Duration) read(d *decoder, n *yaml.Node) {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil {
		parsed, err = rules.ParseDuration(n.Value)
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		d.refuse(n, "a duration is like 250ms, 3s, 1m, 1h or 7d, not %q", n.Value)
	}
	*t = Duration(parsed)
}

// read reads an instant.
func (i *Instant) read(d *decoder, n *yaml.Node) {
	parsed, err := time.Parse(time.RFC3339, n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.refuse(n, "an instant is like 2026-01-01T00:00:00Z, not %q", n.Value)
	}
	i.Time = parsed
}

// read reads a descriptor: a mapping, whose order counts.
func (e *Descriptor) read(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		d.refuse(n, "a descriptor is a mapping of its entries in order, as in {user: alice, path: /search}")
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i+1].Kind != yaml.ScalarNode {
			hint := ""
			if n.Content[i].Value == "entries" {
				hint = ": write the entries themselves, as in {user: alice, path: /search}"
			}
			d.refuse(n.Content[i+1], "the entry %q wants a text%s", n.Content[i].Value, hint)
		}
		*e = append(*e, Entry{n.Content[i].Value, n.Content[i+1].Value})
	}
	if len(*e) == 2 && (*e)[0].Key == "key" && (*e)[1].Key == "value" {
		d.refuse(n, "an entry is written as its key and its value: {%s: %s}", (*e)[0].Value, (*e)[1].Value)
	}
}

// read reads what is wanted: a verdict alone, or a mapping.
func (w *Want) read(d *decoder, n *yaml.Node) {
	type bare Want
	if n.Kind == yaml.ScalarNode {
		w.Line, w.Verdict = n.Line, n.Value
	} else {
		d.decode(n, reflect.ValueOf((*bare)(w)).Elem())
	}
	if w.Verdict != "" && !slices.Contains(verdicts, w.Verdict) {
		d.refuse(n, "%q is not a verdict: %s", w.Verdict, rules.Suggest(w.Verdict, verdicts))
	}
}
