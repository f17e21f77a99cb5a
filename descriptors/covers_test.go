package descriptors

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestCoversPattern: a pattern covers another where each path of the other is one of its own.
func TestCoversPattern(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		want         bool
	}{
		{"/a", "/a", true}, {"/a", "/b", false}, {"/*", "/a", true}, {"/a", "/*", false}, {"/*", "/a/b", false},
		{"/**", "/", true}, {"/**", "/a/*/b", true}, {"/a/**", "/a", true}, {"/a/**", "/a/**/b", true},
		{"/a/*", "/a/**", false},
		{"/**/b", "/b", true}, {"/**/b", "/a/**/b", true}, {"/**/b/**", "/b/**", true}, {"/b/**", "/**/b/**", false},
		{"/v*", "/v1*", true}, {"/v1*", "/v*", false}, {"/*a*", "/*a", true}, {"/*", "/**", false},
		{"/*/*", "/a/**", false},
	} {
		wide := must.Get(parsePattern(c.wide))(t)
		narrow := must.Get(parsePattern(c.narrow))(t)
		if got := wide.covers(narrow); got != c.want {
			t.Errorf("%s covers %s: %t", c.wide, c.narrow, got)
		}
	}
}

// TestCoveringPatternMatchesMore holds covers against random paths.
func TestCoveringPatternMatchesMore(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	random := func(words ...string) string {
		text := ""
		for range 1 + r.IntN(4) {
			text += "/" + words[r.IntN(len(words))]
		}
		return text
	}
	covered := 0
	for range 20_000 {
		wide := must.Get(parsePattern(random("a", "b", "*", "**", "a*", "*b")))(t)
		narrow := must.Get(parsePattern(random("a", "b", "*", "**", "a*", "ab")))(t)
		if !wide.covers(narrow) {
			continue
		}
		covered++
		for range 20 {
			path := random("a", "b", "ab", "c")
			if matchNaive(segmentsOf(narrow.text), segmentsOf(path)) && !matchNaive(segmentsOf(wide.text),
				segmentsOf(path)) {
				t.Fatalf("%s does not cover %s: %s", wide.text, narrow.text, path)
			}
		}
	}
	if covered < 1000 {
		t.Errorf("only %d pairs cover each other", covered)
	}
}

var neverApplies = regexp.MustCompile(`^rule "([^"]+)" can never apply`)

// neverWins returns the rules that are reported to be without effect.
func neverWins(problems []Problem) map[string]bool {
	names := map[string]bool{}
	for _, p := range problems {
		if m := neverApplies.FindStringSubmatch(p.Text); m != nil &&
			strings.Contains(p.Text, "matches all that it matches") {
			names[m[1]] = true
		}
	}
	return names
}
