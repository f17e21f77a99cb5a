package descriptors

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestParsePattern(t *testing.T) {
	for _, c := range []struct {
		in, want string
		class    patternClass
	}{
		{"/a", "/a", exactPattern}, {"a/", "/a", exactPattern}, {"/", "/", exactPattern},
		{"//a/./b", "/a/b", exactPattern},
		{"/a*", "/a*", starPattern}, {"/*/b", "/*/b", starPattern}, {"/a/**", "/a/**", deepPattern},
		{"/**/b*", "/**/b*", deepPattern},
		{"/a/**/**", "/a/**", deepPattern}, {"/a**", "/a*/**", deepPattern},
		{"/f/**.json", "/f/**/*.json", deepPattern}, {"/***", "/**", deepPattern},
	} {
		p, err := parsePattern(c.in)
		if err != nil || p.text != c.want || p.class != c.class {
			t.Errorf("parsePattern(%q) = %+v, %v, want %q of class %d", c.in, p, err, c.want, c.class)
		}
	}
	for _, in := range []string{"", "/a?b", "/a#b", "/%zz", "/a**b", "/\x00", strings.Repeat("/a", 513)} {
		if p, err := parsePattern(in); err == nil {
			t.Errorf("parsePattern(%.20q) = %q, want an error", in, p.text)
		}
	}
}

// matchNaive returns what a pattern matches, slowly and by definition.
func matchNaive(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		return matchNaive(pattern[1:], path) || len(path) > 0 && matchNaive(pattern, path[1:])
	}
	if len(path) == 0 || !starNaive(pattern[0], path[0]) {
		return false
	}
	return matchNaive(pattern[1:], path[1:])
}

func starNaive(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		return starNaive(pattern[1:], text) || text != "" && starNaive(pattern, text[1:])
	}
	return text != "" && pattern[0] == text[0] && starNaive(pattern[1:], text[1:])
}

func segmentsOf(path string) []string {
	if path == "/" {
		return nil
	}
	return strings.Split(path[1:], "/")
}

// TestPatternsAgainstDefinition holds the walk of all patterns at once against the definition of each.
func TestPatternsAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	words := []string{"a", "b", "ab", "*", "a*", "*b", "a*b", "*a*", "**"}
	for range 300 / divisor {
		var ps patterns
		var all []*pattern
		for range 12 {
			var segments []string
			for range r.IntN(5) {
				segments = append(segments, words[r.IntN(len(words))])
			}
			p := must.Get(parsePattern("/" + strings.Join(segments, "/")))(t)
			if ps.intern(p) == p {
				all = append(all, p)
			}
		}
		var w pathWalk
		for range 30 {
			var segments []string
			for range r.IntN(6) {
				segments = append(segments, []string{"a", "b", "ab", "aab", "ba"}[r.IntN(5)])
			}
			path := "/" + strings.Join(segments, "/")
			ps.match(&w, path)
			for _, p := range all {
				want := matchNaive(segmentsOf(p.text), segmentsOf(path))
				if got := slices.Contains(w.found, p); got != want {
					t.Fatalf("%q matches %q: %t, want %t", p.text, path, got, want)
				}
			}
			if len(slices.Compact(slices.Clone(w.found))) != len(w.found) {
				t.Fatalf("%q finds a pattern twice", path)
			}
		}
	}
}

// TestHostilePathIsFast: a path that makes naive matchers try every split takes no time that matters. An exponential or
// cubic walk would take hours, which is longer than a test may run.
func TestHostilePathIsFast(t *testing.T) {
	var ps patterns
	for _, text := range []string{"/**/a/**/a/**/a/**/a/**/b", "/**/*a*a*a*a*a*b", "/*a*a*a*a*a*a*a*b/**"} {
		p := must.Get(parsePattern(text))(t)
		ps.intern(p)
	}
	start := time.Now()
	var w pathWalk
	ps.match(&w, strings.Repeat("/a", 30<<10))
	ps.match(&w, "/"+strings.Repeat("a", 60<<10))
	t.Logf("took %v", time.Since(start))
	if len(w.found) != 0 {
		t.Errorf("found %d patterns, want none", len(w.found))
	}
}

// TestGlobAgainstDefinition holds the glob of trees against the definition.
func TestGlobAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	random := func(alphabet string, most int) string {
		var b strings.Builder
		for range r.IntN(most) {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 50_000 / divisor {
		pattern := random("ab*", 6) + "*" + random("ab*", 4)
		text := random("ab", 8)
		if got, want := parseGlob(pattern).match(text), starNaive(pattern, text); got != want {
			t.Fatalf("%q matches %q: %t, want %t", pattern, text, got, want)
		}
	}
}
