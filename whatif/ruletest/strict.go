package ruletest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/rules"
)

// The types below take a mapping apart by hand where the package for YAML would let unknown keys pass or name Go types.

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

// problem is an error of the package for YAML at a node; it gathers all of them.
func problem(n *yaml.Node, format string, args ...any) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("%d:%d: ", n.Line, n.Column) + fmt.Sprintf(format, args...)}}
}

// UnmarshalYAML reads a text or a list of texts.
func (s *Strings) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*s = Strings{n.Value}
		return nil
	}
	list := []string{}
	err := n.Decode(&list)
	*s = list
	return err
}

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil {
		parsed, err = rules.ParseDuration(n.Value)
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		return problem(n, "a duration is like 250ms, 3s, 1m, 1h or 7d, not %q", n.Value)
	}
	*d = Duration(parsed)
	return nil
}

// UnmarshalYAML reads an instant.
func (i *Instant) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.Parse(time.RFC3339, n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return problem(n, "an instant is like 2026-01-01T00:00:00Z, not %q", n.Value)
	}
	i.Time = parsed
	return nil
}

// UnmarshalYAML reads a descriptor: a mapping, whose order counts.
func (d *Descriptor) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return problem(n, "a descriptor is a mapping of its entries in order, as in {user: alice, path: /search}")
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i+1].Kind != yaml.ScalarNode {
			return problem(n.Content[i+1], "the entry %q wants a text", n.Content[i].Value)
		}
		*d = append(*d, Entry{n.Content[i].Value, n.Content[i+1].Value})
	}
	return nil
}

// UnmarshalYAML reads the file.
func (f *File) UnmarshalYAML(n *yaml.Node) error {
	type bare File
	return strict(n, (*bare)(f))
}

// UnmarshalYAML reads a test.
func (t *Test) UnmarshalYAML(n *yaml.Node) error {
	type bare Test
	t.Line = n.Line
	return strict(n, (*bare)(t))
}

// UnmarshalYAML reads a request.
func (r *Request) UnmarshalYAML(n *yaml.Node) error {
	type bare Request
	r.Line = n.Line
	return strict(n, (*bare)(r))
}

// UnmarshalYAML reads a request over HTTP.
func (h *HTTP) UnmarshalYAML(n *yaml.Node) error {
	type bare HTTP
	return strict(n, (*bare)(h))
}

// UnmarshalYAML reads what is wanted: a verdict alone, or a mapping.
func (w *Want) UnmarshalYAML(n *yaml.Node) error {
	type bare Want
	w.Line = n.Line
	if n.Kind == yaml.ScalarNode {
		w.Verdict = n.Value
		return w.checkVerdict(n)
	}
	err := strict(n, (*bare)(w))
	if err != nil {
		return err
	}
	return w.checkVerdict(n)
}

func (w *Want) checkVerdict(n *yaml.Node) error {
	if w.Verdict != "" && !slices.Contains(verdicts, w.Verdict) {
		return problem(n, "%q is not a verdict: %s", w.Verdict, rules.Suggest(w.Verdict, verdicts))
	}
	return nil
}

// strict decodes a mapping into the struct that to points to, and refuses keys that the struct has no field for.
func strict(n *yaml.Node, to any) error {
	known := keysOf(reflect.TypeOf(to).Elem())
	if n.Kind != yaml.MappingNode {
		return problem(n, "a mapping with some of %s is wanted here", strings.Join(known, ", "))
	}
	var all []string
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if !slices.Contains(known, key.Value) {
			all = append(all, fmt.Sprintf("%d:%d: unknown key %q: %s", key.Line, key.Column, key.Value, rules.Suggest(key.Value, known)))
		}
	}
	err := n.Decode(to)
	var more *yaml.TypeError
	if errors.As(err, &more) {
		all = append(all, more.Errors...)
		err = nil
	}
	if err == nil && len(all) > 0 {
		err = &yaml.TypeError{Errors: all}
	}
	return err
}

func keysOf(of reflect.Type) (keys []string) {
	for i := range of.NumField() {
		if key := of.Field(i).Tag.Get("yaml"); key != "-" {
			keys = append(keys, key)
		}
	}
	return keys
}

var (
	ownLine  = regexp.MustCompile(`^\d+:\d+: `)
	yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	yamlType = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: `([^`]*)`)? into (.*)")
)

// wanted is what the types of this package are called.
var wanted = []struct{ begins, is string }{
	{"int", "a whole number"}, {"uint", "a whole number from 0"}, {"bool", "true or false"}, {"string", "a text"}, {"[]", "a list"}, {"map", "a mapping"},
}

// positioned writes the errors of the package for YAML one per line as file:line:column: text.
func positioned(path string, err error) error {
	texts := []string{err.Error()}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		texts = several.Errors
	}
	var all []error
	for _, text := range texts {
		if !ownLine.MatchString(text) {
			text = yamlLine.ReplaceAllString(text, "$1: ")
			text = strings.TrimPrefix(text, "yaml: ")
		}
		all = append(all, errors.New(path+":"+yamlType.ReplaceAllStringFunc(text, plainType)))
	}
	return errors.Join(all...)
}

// plainType says what is wanted in the words of a YAML file.
func plainType(text string) string {
	parts := yamlType.FindStringSubmatch(text)
	is := "something else"
	for _, w := range wanted {
		if strings.HasPrefix(parts[3], w.begins) {
			is = w.is
		}
	}
	if parts[2] == "" {
		return "this wants " + is + ", not a " + strings.NewReplacer("map", "mapping", "seq", "list").Replace(parts[1])
	}
	return fmt.Sprintf("this wants %s, not %q", is, parts[2])
}
