package rules

import (
	"fmt"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"go.yaml.in/yaml/v3"
)

// maxProblems is how many problems of one file are reported; a file with more is not one that a person wrote.
const maxProblems = 1000

// Decode reads one rule file. The name is what problems call it. It returns every problem at once, and the domain as
// far as it could be read: what is broken is left out, so that descriptors.Compile does not complain about it again.
// Only a domain without errors may be used.
func Decode(file string, text []byte) (descriptors.Domain, []descriptors.Problem) {
	d := decode(file, text)
	return d.domain, arrange(d.problems)
}

// decoder reads one file.
type decoder struct {
	file     string
	raw      []byte
	domain   descriptors.Domain
	problems []descriptors.Problem
	errors   int                        // problems that are not warnings
	given    map[string]descriptors.Pos // the keys of the file's top level
	names    []string                   // files that the rules name, as written

	spoilt     map[spot]bool            // keys that could not be read
	broken     map[descriptors.Pos]bool // rules and rows that have an error
	incomplete bool                     // what other checks depend on could not be read
	keyTiers   []descriptors.Account    // API keys that have a tier

	overrides  bool // the warning of checkOverride was given
	describing bool // it makes the schema and reads no file, so it finds no problems
}

func decode(file string, text []byte) *decoder {
	d := &decoder{file: file, raw: text, given: map[string]descriptors.Pos{}, spoilt: map[spot]bool{},
		broken: map[descriptors.Pos]bool{}}
	d.domain.Pos = descriptors.Pos{File: file, Line: 1, Column: 1}
	d.domain.ChargeDenied = true
	root, bad := parse(text)
	if bad != nil {
		d.report(bad.line, bad.column, bad.text, false)
		return d
	}
	r := &resolver{d: d, anchors: map[*yaml.Node]*node{}}
	n := r.resolve(root, "the file", 1)
	if !r.failed {
		d.root(n)
	}
	return d
}

// usable reports whether the domain can be checked further, though it may hold errors.
func (d *decoder) usable() bool { return d.domain.Name != "" }

func (d *decoder) report(line, column int, text string, warning bool) {
	if d.describing {
		return
	}
	if !warning {
		d.errors++
	}
	switch len(d.problems) {
	case maxProblems:
		return
	case maxProblems - 1:
		text, warning = "there are more problems; these come first", false
	}
	d.problems = append(d.problems, descriptors.Problem{
		Pos: descriptors.Pos{File: d.file, Line: line, Column: column}, Text: text, Warning: warning,
	})
}

// full reports whether there are so many problems that further ones are not reported. Then the rest of the file is not
// read.
func (d *decoder) full() bool { return len(d.problems) >= maxProblems }

// fail reports an error at n.
func (d *decoder) fail(n *node, format string, args ...any) {
	d.report(n.line, n.column, fmt.Sprintf(format, args...), false)
}

// warn reports a warning at n.
func (d *decoder) warn(n *node, format string, args ...any) {
	d.report(n.line, n.column, fmt.Sprintf(format, args...), true)
}

// wants reports that n is of the wrong type.
func (d *decoder) wants(n *node, what string) {
	d.fail(n, "%s wants %s, not %s", n.title(), what, n.describe())
}

// sound runs read and reports whether it found no error.
func (d *decoder) sound(read func()) bool {
	before := d.errors
	read()
	return d.errors == before
}

// pos is where n was written.
func (d *decoder) pos(n *node) descriptors.Pos {
	return descriptors.Pos{File: d.file, Line: n.line, Column: n.column}
}

// reader takes in the value of one key.
type reader func(n *node)

// unknown adds an error about an unknown key of a map. It does not show one that may be an API key.
func (d *decoder) unknown(n, key *node, known []string) {
	if n.holdsKeys() && nearest(key.text, known) == "" {
		d.fail(key, "unknown key; known here: %s", strings.Join(known, ", "))
		return
	}
	d.fail(key, "unknown key %q; %s", clip(key.text), suggestKey(key.text, known))
}

// object reads a map whose keys are known. It reports whether n is a map.
func (d *decoder) object(n *node, keys map[string]reader) bool {
	if n.kind != mapping {
		d.wants(n, "a map")
		return false
	}
	if n.shape != nil {
		n.describeObject(keys)
		return true
	}
	for _, f := range n.fields {
		if d.full() {
			return true
		}
		read, known := keys[f.key.text]
		if !known {
			d.unknown(n, f.key, sorted(keys))
			d.spoilt[spot{n, nearest(f.key.text, sorted(keys))}] = true
			continue
		}
		if !d.sound(func() { read(f.value) }) {
			d.spoilt[spot{n, f.key.text}] = true
		}
	}
	return true
}

// table reads a map whose keys the user chooses.
func (d *decoder) table(n *node, read func(key, value *node)) {
	if n.kind != mapping {
		d.wants(n, "a map")
		return
	}
	if n.shape != nil {
		n.describeTable(read)
		return
	}
	for _, f := range n.fields {
		if d.full() {
			return
		}
		if _, ok := d.word(f.key, "a key"); ok {
			read(f.key, f.value)
		}
	}
}

// each reads the items of a list, which may be empty.
func (d *decoder) each(n *node, read reader) {
	if n.kind != list {
		d.wants(n, "a list")
		return
	}
	if n.shape != nil {
		n.describeList(read, 0)
		return
	}
	for _, item := range n.items {
		if d.full() {
			return
		}
		read(item)
	}
}

// some reads the items of a list that must not be empty: an empty condition would hold for everything or for nothing,
// and it is unknown which was meant.
func (d *decoder) some(n *node, read reader) {
	if n.describes(list) {
		n.describeList(read, 1)
		return
	}
	if n.kind == list && len(n.items) == 0 {
		d.fail(n, "%s is an empty list; remove the key, or list something", n.label)
		return
	}
	d.each(n, read)
}

// optional makes a reader that takes nothing for an answer, as the reference server does for each of its keys.
func optional(read reader) reader {
	return func(n *node) {
		if n.describes(scalar) {
			n.accept(nothing())
		}
		if !n.isNull() {
			read(n)
		}
	}
}
