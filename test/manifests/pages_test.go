package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// A block of the page is a piece of a file, so that what holds for the files holds for it. Only the indentation is the page's own.
func TestBlocksOfThePageArePiecesOfTheFiles(t *testing.T) {
	var files []string
	for _, name := range append(exampleFiles(t), meshValues) {
		files = append(files, strings.Split(example(t, name), "\n")...)
	}
	text, err := os.ReadFile(filepath.Join(servers.Root(t), "docs", "istio.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	blocks := regexp.MustCompile("(?ms)^ *```yaml\n(.*?)\n *```$").FindAllStringSubmatch(page, -1)
	if len(blocks) < 4 || len(blocks) != strings.Count(page, "```y") {
		t.Fatalf("docs/istio.md has %d blocks that this test can read, of %d", len(blocks), strings.Count(page, "```y"))
	}
	for _, block := range blocks {
		if !holds(files, strings.Split(block[1], "\n")) {
			t.Errorf("no file of examples/istio holds this block of docs/istio.md:\n%s", block[1])
		}
	}
}

// holds tells whether a piece stands somewhere in the lines, all of it indented by as much more or less.
func holds(lines, piece []string) bool {
	for i := range len(lines) - len(piece) + 1 {
		if slices.Equal(aligned(lines[i:i+len(piece)]), aligned(piece)) {
			return true
		}
	}
	return false
}

// aligned are lines without the indentation of the first.
func aligned(lines []string) []string {
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	var all []string
	for _, line := range lines {
		all = append(all, strings.TrimPrefix(line, indent))
	}
	return all
}
