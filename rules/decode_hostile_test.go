package rules

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestGuards holds the bounds that keep a hostile file from taking the program down.
func TestGuards(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"empty":         {"", "empty"},
		"large":         {"domain: d # " + strings.Repeat("x", 4<<20), "more than 4 MiB"},
		"not UTF-8":     {"domain: d\nrules: \xff\n", "2:8: this byte is not UTF-8"},
		"control byte":  {"domain: d\n# \x00\n", "2:3: a control character"},
		"deep brackets": {"domain: " + strings.Repeat("[", 100_000), "1:1:"},
		"many problems": {"domain: d\n" + strings.Repeat("? [x]\n", 3000), "there are more problems"},
		"C1 control":    {"domain: d\n# \u0090\n", "2:3: a control character"},
		"wide alias": {"domain: d\ndescriptors: &a [" + strings.Repeat("{},", 60_000) + "]\nrules: *a\nusers: *a\n",
			"aliases repeat"},
	} {
		_, problems := Decode("a.yaml", []byte(c.text))
		text := FormatProblems(problems)
		if !strings.Contains(text, c.says) {
			t.Errorf("%s: %.200q does not say %q", name, text, c.says)
		}
		if len(problems) > maxProblems {
			t.Errorf("%s: %d problems, want at most %d", name, len(problems), maxProblems)
		}
	}
}

// TestCutAtEveryByte holds that a file cut anywhere is refused, or means what is left of its text: all that it decodes
// to is the beginning of what the whole file does.
func TestCutAtEveryByte(t *testing.T) {
	const file = "testdata/cut.yaml"
	text := readFile(t, file)
	whole, _ := Decode(file, text)
	accepted := 0
	for size := range text {
		d, problems := Decode(file, text[:size])
		if len(problems) > 0 {
			continue
		}
		accepted++
		if !strings.HasPrefix(whole.Name, d.Name) {
			t.Errorf("cut at %d: domain %q", size, d.Name)
		}
		if len(d.Rules) > len(whole.Rules) || len(d.Tree) > len(whole.Tree) {
			t.Errorf("cut at %d: %d rules and %d nodes, more than there are", size, len(d.Rules), len(d.Tree))
		}
		for i := range len(d.Rules) - 1 { // the last one may be cut itself
			if !reflect.DeepEqual(d.Rules[i], whole.Rules[i]) {
				t.Errorf("cut at %d: rule %d differs from that of the whole file", size, i)
			}
		}
	}
	if accepted == 0 || accepted == len(text) {
		t.Errorf("%d of %d cuts are accepted, want some and not all", accepted, len(text))
	}
}

func TestFormatProblems(t *testing.T) {
	got := FormatProblems([]descriptors.Problem{
		{Pos: descriptors.Pos{File: "a.yaml", Line: 3, Column: 5}, Text: "wrong"},
		{Pos: descriptors.Pos{File: "a.yaml", Line: 4, Column: 1}, Text: "odd", Warning: true},
		{Pos: descriptors.Pos{File: "b.yaml"}, Text: "gone"},
	})
	expected := "a.yaml:3:5: wrong\na.yaml:4:1: warning: odd\nb.yaml: gone\n"
	if got != expected {
		t.Errorf("got %q, want %q", got, expected)
	}
}

// FuzzDecode holds that no text makes the decoder panic, or accept a domain without a name.
func FuzzDecode(f *testing.F) {
	f.Add(readFile(f, full))
	bad := must.Get(filepath.Glob("testdata/bad/*.yaml"))(f)
	for _, file := range bad {
		f.Add(readFile(f, file))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, problems := Decode("a.yaml", text)
		broken := slices.ContainsFunc(problems, isError)
		if !broken && d.Name == "" {
			t.Error("a file without a domain is accepted")
		}
		for _, p := range problems {
			if p.Line < 1 || p.Column < 1 || p.Text == "" || p.File != "a.yaml" {
				t.Errorf("problem without a place or a text: %+v", p)
			}
		}
		if !broken {
			descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
		}
	})
}

// TestAFileFullOfProblemsIsNotReadToItsEnd: looking for what was meant costs time, and only the first problems are
// shown.
func TestAFileFullOfProblemsIsNotReadToItsEnd(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: shop\nrules:\n")
	for i := range 3 * maxProblems {
		fmt.Fprintf(&text, "  - { name: r%d, unknown_key_%d: 1, scope: user, limit: 5/1m }\n", i, i)
	}
	for i := range 100_000 {
		fmt.Fprintf(&text, "unknown_top_%d: 1\n", i)
	}
	d := decode("rules.yaml", []byte(text.String()))
	if len(d.problems) != maxProblems || d.errors > maxProblems {
		t.Errorf("%d problems and %d errors were found, want %d", len(d.problems), d.errors, maxProblems)
	}
	last := d.problems[len(d.problems)-1]
	if last.Warning || last.Text != "there are more problems; these come first" {
		t.Errorf("the last problem is %+v", last)
	}
}
