package house

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// namesExist holds a page to the code: the tests, variables and metrics that it names exist.
func namesExist(t *testing.T, name string) {
	t.Helper()
	known, read := provers(t), settings.Variables()
	metrics := page(t, "docs/reference/metrics.md")
	variable := regexp.MustCompile(`^[A-Z]+(_[A-Z0-9]+)*$`)
	for n, line := range strings.Split(page(t, name), "\n") {
		for _, word := range namesIn(line) {
			switch {
			case prover.MatchString(word):
				if known[word] == "" {
					t.Errorf("%s:%d: there is no test %s", name, n+1, word)
				}
			case variable.MatchString(word):
				if !slices.Contains(read, word) {
					t.Errorf("%s:%d: the sidecar does not read %s", name, n+1, word)
				}
			case strings.HasPrefix(word, "spillway_"):
				if !strings.Contains(metrics, "`"+word+"`") {
					t.Errorf("%s:%d: there is no metric %s", name, n+1, word)
				}
			}
		}
	}
}

// TestSecurityPageIsTrue holds the page about security to the code: its tests, variables and metrics exist, each row of
// what a client may try names a test, and the ports are the defaults.
func TestSecurityPageIsTrue(t *testing.T) {
	const name = "docs/security.md"
	namesExist(t, name)
	text := page(t, name)
	_, tries, _ := strings.Cut(text, "\n| a client tries |")
	tries, _, _ = strings.Cut(tries, "\n\n")
	rows := 0
	for line := range strings.Lines(tries) {
		proof, is := proofIn(strings.TrimSpace(line))
		if !is || strings.HasPrefix(line, " what happens") {
			continue
		}
		rows++
		if !slices.ContainsFunc(namesIn(proof), prover.MatchString) {
			t.Errorf("%s: no test stands behind %s", name, line)
		}
	}
	if rows < 10 {
		t.Errorf("%s has %d rows of what a client may try: its table has another shape than this test reads", name,
			rows)
	}
	environment := page(t, "docs/reference/environment.md")
	for _, found := range regexp.MustCompile("`([A-Z_]+)` \\((:?[0-9]+)\\)").FindAllStringSubmatch(text, -1) {
		row := regexp.MustCompile("(?m)^\\| `" + found[1] + "` \\| \\w+ \\(`" + found[2] + "`\\) \\|")
		if !row.MatchString(environment) {
			t.Errorf("%s: %s is not %s by default", name, found[1], found[2])
		}
	}
}
