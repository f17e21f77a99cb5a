package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
)

// TestExamplesLoadWithoutAWarning reads the rules that `make run` starts with.
func TestExamplesLoadWithoutAWarning(t *testing.T) {
	load := NewFiles(FilesConfig{Path: "../examples/rules"}).Load()
	if load.Rejected() || len(load.Problems) > 0 {
		t.Errorf("the examples have problems:\n%s", load.Text())
	}
	if load.Files < 2 {
		t.Errorf("%d example files, want at least 2", load.Files)
	}
}

const page = "../docs/reference/rules.md"

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestPageShowsWhatWorks loads each YAML block of the page. Blocks without a domain get one.
func TestPageShowsWhatWorks(t *testing.T) {
	text := string(readFile(t, page))
	blocks := yamlBlock.FindAllStringSubmatchIndex(text, -1)
	if len(blocks) < 8 {
		t.Fatalf("%d YAML blocks, want at least 8", len(blocks))
	}
	for _, at := range blocks {
		block := text[at[2]:at[3]]
		if !strings.HasPrefix(block, "domain:") {
			block = "domain: page\n" + block
		}
		file := fmt.Sprintf("block in line %d", 1+strings.Count(text[:at[0]], "\n"))
		d, problems := Decode(file, []byte(block))
		_, more := descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
		problems = append(problems, more...)
		if len(problems) > 0 {
			t.Error(FormatProblems(problems))
		}
	}
}

// TestPageNamesEveryKey holds that no key is left out of the page: those of the file that has them all.
func TestPageNamesEveryKey(t *testing.T) {
	text := string(readFile(t, page))
	key := regexp.MustCompile(`(?m)(?:^|[{,-]) *([a-z][a-z0-9_]+):(?: |$)`)
	own := []string{"x_theatre", "client", "alice", "odeon", "model", "paid", "owner", "level", "tags", "team", "more"}
	for _, found := range key.FindAllStringSubmatch(string(readFile(t, full)), -1) {
		name := found[1]
		if !slices.Contains(own, name) && !regexp.MustCompile(name+"[`.[]").MatchString(text) {
			t.Errorf("the page has no word on the key %s", name)
		}
	}
}
