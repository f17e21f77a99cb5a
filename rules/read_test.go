package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestReadMakesOneSetOfSeveralPaths(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	shop := write("shop.yaml", "domain: shop\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n")
	twice := write("twice.yml", "domain: shop\nrules:\n  - { name: b, scope: user, match: { methods: [GET] }, "+
		"limit: 1/1m }\n")
	edge := write("edge.conf", "domain: edge\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n")

	load := Read(FilesConfig{}, edge, shop)
	if load.Rejected() || load.Files != 2 || len(load.Set.Domains()) != 2 {
		t.Errorf("two files are %d files, rejected %v:\n%s", load.Files, load.Rejected(), load.Text())
	}
	load = Read(FilesConfig{MergeDomains: true}, folder, shop, edge)
	if load.Rejected() || load.Files != 3 {
		t.Errorf("a folder, one of its files and a third are %d files, want 3:\n%s", load.Files, load.Text())
	}
	load = Read(FilesConfig{}, shop, twice)
	if !load.Rejected() || !strings.Contains(load.Text(), "duplicate domain") {
		t.Errorf("a domain in two files is no problem:\n%s", load.Text())
	}
	load = Read(FilesConfig{}, shop, filepath.Join(folder, "none.yaml"))
	if load.Err == nil {
		t.Error("a missing file is accepted")
	}
}
