package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/settings"
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

func TestReadmeNamesSettingsThatExist(t *testing.T) {
	read := settings.Variables()
	listed := regexp.MustCompile("(?m)^\\| `([A-Z_]+)`").FindAllStringSubmatch(page(t, "README.md"), -1)
	if len(listed) < 10 {
		t.Fatalf("README.md lists %d settings: its table has another shape than this test reads", len(listed))
	}
	for _, s := range listed {
		if !slices.Contains(read, s[1]) {
			t.Errorf("README.md lists %s, which the sidecar does not read", s[1])
		}
	}
}

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
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
	if text := page(t, "LICENSE"); !strings.Contains(text, "Apache License") || !strings.Contains(text, "Version 2.0, January 2004") {
		t.Error("LICENSE is not the Apache License 2.0")
	}
}
