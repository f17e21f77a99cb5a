package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestRuntimeRoot reads a folder as the reference server does: all regular files below, with any name.
func TestRuntimeRoot(t *testing.T) {
	root := t.TempDir()
	app := filepath.Join(root, "limits", "config")
	write(t, domain("a"), app, "a.yaml")
	write(t, domain("b"), app, "b.conf")
	write(t, domain("c"), app, "deep", "er", "c")
	write(t, domain("dot"), app, ".dot.yaml")
	write(t, "domain: [", root, "limits", "other", "x.yaml")
	cfg := FilesConfig{RuntimeRoot: root, RuntimeSubdirectory: "limits"}
	f := follow(t, cfg)
	f.untilDomains("a", "b", "c", "dot")

	cfg.IgnoreDotFiles = true
	f2 := follow(t, cfg)
	f2.untilDomains("a", "b", "c")

	write(t, domain("c2"), app, "deep", "er", "c")
	f2.untilDomains("a", "b", "c2")

	write(t, domain("d"), app, "new", "d")
	f2.untilDomains("a", "b", "c2", "d")
}

func TestRuntimeRootIsALink(t *testing.T) {
	top := t.TempDir()
	write(t, domain("v1"), top, "v1", "config", "a.yaml")
	write(t, domain("v2"), top, "v2", "config", "a.yaml")
	current := filepath.Join(top, "current")
	must.Do(t, os.Symlink("v1", current))
	f := follow(t, FilesConfig{RuntimeRoot: current, WatchRoot: true})
	f.untilDomains("v1")
	must.Do(t, os.Symlink("v2", current+".new"))
	must.Do(t, os.Rename(current+".new", current))
	f.untilDomains("v2")
}

// TestRuntimeVolume holds that a mounted ConfigMap is not read twice, with and without IgnoreDotFiles.
func TestRuntimeVolume(t *testing.T) {
	root := t.TempDir()
	v := &volume{t: t, dir: filepath.Join(root, "config")}
	v.swap(twins(0))
	write(t, domain("a0"), v.dir, "..2023_left_over", "a.yaml")
	f := follow(t, FilesConfig{RuntimeRoot: root})
	f.untilDomains("a0", "b0")
	v.swap(twins(1))
	f.untilDomains("a1", "b1")
}

func TestFilesThatRulesNameAreNoRules(t *testing.T) {
	root := t.TempDir()
	app := filepath.Join(root, "config")
	write(t, "domain: a\nidentity:\n  jwt:\n    - { issuer: https://a, jwks: \"file:keys/jwks.json\" }\n", app,
		"a.yaml")
	write(t, `{"keys": []}`, app, "keys", "jwks.json")
	f := NewFiles(FilesConfig{RuntimeRoot: root})
	load := f.Load()
	if load.Rejected() || load.Files != 1 {
		t.Errorf("%d files, want 1: %s", load.Files, load.Text())
	}
	write(t, `{"keys": []}`, app, "unnamed.json")
	if load := f.Load(); !load.Rejected() || !strings.Contains(load.Text(), "unnamed.json:1:2: unknown key \"keys\"") {
		t.Errorf("a file that is no rule file was not refused: %s", load.Text())
	}
}

func TestDuplicateDomains(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("a"), dir, "a.yaml")
	write(t, domain("a"), dir, "b.yaml")
	load := NewFiles(FilesConfig{Path: dir}).Load()
	if !load.Rejected() || !strings.Contains(load.Text(), "b.yaml:1:9: duplicate domain") {
		t.Errorf("two files of one domain: %s", load.Text())
	}
}

func TestMergeDomains(t *testing.T) {
	dir := t.TempDir()
	write(t, "domain: a\nheaders: ietf\nrules:\n  - { name: x, scope: user, limit: 1/1s }\ndescriptors:\n"+
		"  - key: k\nusers: { bob: { tier: t } }\n", dir, "a.yaml")
	write(t, "domain: a\ncharge_denied: false\nrules:\n  - { name: y, scope: ip, limit: 1/1s }\ndescriptors:\n"+
		"  - key: l\nusers: { eve: { tier: t } }\n", dir, "b.yaml")
	f := NewFiles(FilesConfig{Path: dir, MergeDomains: true})
	if load := f.Load(); load.Rejected() || len(load.Set.Domains()) != 1 {
		t.Fatalf("merging: %s", load.Text())
	}
	write(t, "domain: a\nheaders: none\nrules:\n  - { name: x, scope: ip, limit: 1/1s }\ndescriptors:\n  - key: k\n"+
		"    descriptors: [{ key: z }]\nusers: { bob: { tier: u } }\n", dir, "c.yaml")
	text := f.Load().Text()
	for _, says := range []string{"c.yaml:2:1: headers of domain \"a\" is given in", "c.yaml:4:5: duplicate rule name",
		"c.yaml:6:5: duplicate descriptor", "c.yaml:8:10: \"bob\" is in"} {
		if !strings.Contains(text, says) {
			t.Errorf("%q is not among the problems:\n%s", says, text)
		}
	}
}

func TestMergeTakesTheSettingsOfEachFile(t *testing.T) {
	a := decode("a.yaml", []byte("domain: a\nheaders: ietf\nattributes: { x: user }\ntimezone: Asia/Tokyo\n"))
	b := decode("b.yaml", []byte("domain: a\ncharge_denied: false\nco_locate: true\nreset_format: unix\n"+
		"cost_header: x-c\non_failure: closed\npenalty: { cool_down: 7s }\n"+
		"identity: { client_ip: { ipv6_prefix: 48 } }\n"))
	domains, clashes := join([]*decoder{a, b}, true)
	if len(clashes) > 0 || len(domains) != 1 {
		t.Fatalf("%d domains, clashes: %s", len(domains), FormatProblems(clashes))
	}
	d := domains[0]
	if d.ChargeDenied || !d.CoLocate || !d.ResetUnix || d.CostHeader != "x-c" || d.IPv6Prefix != 48 ||
		d.Attributes["x"] != "user" {
		t.Errorf("settings of one of the files are lost: %+v", d)
	}
	if d.OnFailure != descriptors.FailClosed || d.Penalty == nil || d.Penalty.CoolDown != 7*time.Second ||
		d.Timezone.String() != "Asia/Tokyo" {
		t.Errorf("settings of one of the files are lost: %+v", d)
	}
}
