package spillway_test

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	faultRow = regexp.MustCompile(`\bid: "(X\d+[a-z]?)"`)
)

// TestPromisesNameTheirTests holds the page about failures to the tests: each promise names one that exists, and each row of the
// fault matrix has its promise.
func TestPromisesNameTheirTests(t *testing.T) {
	known := provers(t)
	page, err := os.ReadFile("docs/failure-modes.md")
	if err != nil {
		t.Fatalf("read the page: %v", err)
	}
	var named []string
	for n, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 4 || strings.Contains(line, "---") || strings.Contains(line, "tested by") {
			continue
		}
		proof := cells[len(cells)-1]
		names := quoted.FindAllStringSubmatch(proof, -1)
		if len(names) == 0 {
			t.Errorf("docs/failure-modes.md:%d: the promise names no test", n+1)
		}
		for _, name := range names {
			named = append(named, name[1])
			if !slices.Contains(known, name[1]) {
				t.Errorf("docs/failure-modes.md:%d: there is no test %s", n+1, name[1])
			}
		}
	}
	for _, row := range known {
		if row[0] == 'X' && !slices.Contains(named, row) {
			t.Errorf("docs/failure-modes.md promises nothing that row %s of the matrix holds it to", row)
		}
	}
}

// provers are the names of all tests, and of the rows of the fault matrix.
func provers(t *testing.T) []string {
	t.Helper()
	var known []string
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				known = append(known, f.Name.Name)
			}
		}
		if s.room == "test/integration/faults" {
			for _, row := range faultRow.FindAllStringSubmatch(s.text, -1) {
				known = append(known, row[1])
			}
		}
	}
	return known
}
