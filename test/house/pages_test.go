package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("a page is missing: %v", err)
	}
	return string(text)
}

func TestReadmeShowsTheTwoCommands(t *testing.T) {
	readme := page(t, "README.md")
	for _, command := range []string{"make run", "make test"} {
		if !strings.Contains(readme, command) {
			t.Errorf("README.md does not show %q", command)
		}
	}
	if ci := page(t, ".ci/run"); !strings.Contains(ci, "make test") {
		t.Error(".ci/run does not call make test")
	}
}

// TestReadmeIsShort keeps the first page one that is read. What does not fit goes to a page of docs/.
func TestReadmeIsShort(t *testing.T) {
	readme := page(t, "README.md")
	if lines := strings.Count(readme, "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, at most 120", lines)
	}
	if words := len(strings.Fields(readme)); words > 900 {
		t.Errorf("README.md has %d words, at most 900", words)
	}
}

// TestReadmeNamesSettingsThatExist checks names of variables, and the default where one is in brackets behind the name.
func TestReadmeNamesSettingsThatExist(t *testing.T) {
	read, environment := settings.Variables(), page(t, "docs/reference/environment.md")
	name := regexp.MustCompile("`([A-Z]+(?:_[A-Z]+)*)`(?: \\((`[^`]+`)\\))?")
	named := name.FindAllStringSubmatch(page(t, "README.md"), -1)
	if len(named) < 3 {
		t.Fatalf("README.md names %d settings: it has another shape than this test reads", len(named))
	}
	for _, s := range named {
		if !slices.Contains(read, s[1]) {
			t.Errorf("README.md names %s, which the sidecar does not read", s[1])
		}
		row := regexp.MustCompile("(?m)^\\| `" + s[1] + "` \\| [a-z]+ \\(" + regexp.QuoteMeta(s[2]))
		if s[2] != "" && !row.MatchString(environment) {
			t.Errorf("README.md gives %s the default %s, docs/reference/environment.md another one", s[1], s[2])
		}
	}
}

// TestReadmeNamesCommandsThatExist checks the commands of spillway that the README shows, and its targets of make.
func TestReadmeNamesCommandsThatExist(t *testing.T) {
	readme, commands, makefile := page(t, "README.md"), page(t, "docs/reference/command.md"), page(t, "Makefile")
	named := regexp.MustCompile("(?:`|, `)spillway ([a-z]+)").FindAllStringSubmatch(readme, -1)
	if len(named) < 5 {
		t.Fatalf("README.md names %d commands: it has another shape than this test reads", len(named))
	}
	for _, s := range named {
		if !regexp.MustCompile("(?m)^## spillway " + s[1] + "( |$)").MatchString(commands) {
			t.Errorf("README.md names spillway %s, which does not exist", s[1])
		}
	}
	for _, s := range regexp.MustCompile("(?m)[`^]make ([a-z-]+)").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(makefile, "\n"+s[1]+":") {
			t.Errorf("README.md names make %s, which does not exist", s[1])
		}
	}
}

// TestReadmeQuotesTheResults checks figures of bullets that name the page of the benchmark.
func TestReadmeQuotesTheResults(t *testing.T) {
	results := page(t, "bench/RESULTS.md")
	bullets := regexp.MustCompile(`(?s)\n- \*\*.*?\n\n`).FindString(page(t, "README.md"))
	figures := regexp.MustCompile(`\b\d\.\d+\b`).FindAllString(bullets, -1)
	if len(figures) < 5 {
		t.Fatalf("README.md has %d figures: its bullets have another shape than this test reads", len(figures))
	}
	for _, figure := range figures {
		if !regexp.MustCompile(`\| ` + regexp.QuoteMeta(figure) + `\d* \|`).MatchString(results) {
			t.Errorf("README.md quotes %s, which is not in bench/RESULTS.md", figure)
		}
	}
}

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	pages := must.Get(filepath.Glob("*.md"))(t)
	for _, pattern := range []string{"*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		more := must.Get(filepath.Glob(pattern))(t)
		pages = append(pages, more...)
	}
	for _, name := range pages {
		for _, found := range link.FindAllStringSubmatch(page(t, name), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(name), found[1]))
			if err != nil {
				t.Errorf("%s links to %s: %v", name, found[1], err)
			}
		}
	}
}

func TestDecisionsSayContextChoicePrice(t *testing.T) {
	pages, err := filepath.Glob("docs/decisions/[0-9]*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no decisions found: %v", err)
	}
	index := page(t, "docs/decisions/README.md")
	for _, name := range pages {
		text := strings.ToLower(page(t, name))
		for _, heading := range []string{"\n## context", "\n## choice", "\n## price"} {
			if !strings.Contains(text, heading) {
				t.Errorf("%s has no heading %q", name, strings.TrimSpace(heading))
			}
		}
		if !strings.Contains(index, filepath.Base(name)) {
			t.Errorf("docs/decisions/README.md does not list %s", filepath.Base(name))
		}
	}
}

func TestChangelogLinesSayWhatKindTheyAre(t *testing.T) {
	kind := regexp.MustCompile(`^[-*] \[(CHANGE|FEATURE|ENHANCEMENT|BUGFIX)\] `)
	for i, line := range strings.Split(page(t, "CHANGELOG.md"), "\n") {
		if (strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ")) && !kind.MatchString(line) {
			t.Errorf("CHANGELOG.md:%d: %q starts with none of [CHANGE] [FEATURE] [ENHANCEMENT] [BUGFIX]", i+1, line)
		}
	}
}

func TestLicenceIsApache(t *testing.T) {
	if text := page(t, "LICENSE"); !strings.Contains(text, "Apache License") ||
		!strings.Contains(text, "Version 2.0, January 2004") {
		t.Error("LICENSE is not the Apache License 2.0")
	}
}
