package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

var (
	namedTest   = regexp.MustCompile(`\^((?:Test|Benchmark)\w+)`)
	namedFolder = regexp.MustCompile(`\s\./([\w/]+)`)
)

// TestMakeRunsTestsThatExist: go test passes where a pattern matches nothing, so each test that the Makefile and its
// scripts name has to be in the folder on the same line, or anywhere where there is none.
func TestMakeRunsTestsThatExist(t *testing.T) {
	seen := 0
	for _, name := range append(must.Get(filepath.Glob("tools/*"))(t), "Makefile") {
		info := must.Get(os.Stat(name))(t)
		if info.IsDir() {
			continue
		}
		for n, line := range strings.Split(page(t, name), "\n") {
			var folders []string
			for _, found := range namedFolder.FindAllStringSubmatch(line, -1) {
				folders = append(folders, found[1])
			}
			for _, found := range namedTest.FindAllStringSubmatch(line, -1) {
				seen++
				if !hasTest(t, found[1], folders) {
					t.Errorf("%s:%d: there is no %s in %q", name, n+1, found[1], folders)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no line names a test: lines have another shape than this test reads")
	}
}

// hasTest reports whether a folder has a test or benchmark whose name begins so. Without folders any one may have it.
func hasTest(t *testing.T, prefix string, folders []string) bool {
	for _, s := range sources(t) {
		if !s.test || len(folders) > 0 && !slices.Contains(folders, s.room) {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, prefix) {
				return true
			}
		}
	}
	return false
}
