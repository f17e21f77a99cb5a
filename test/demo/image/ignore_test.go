package image

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// ignore is a .dockerignore: what enters a build is decided by the last pattern that matches a path or a folder above it.
type ignore []pattern

type pattern struct {
	text string
	keep bool // written with a leading !
	re   *regexp.Regexp
}

// parseIgnore reads a .dockerignore. Classes and escapes, which ours has no use for, are refused rather than misread.
func parseIgnore(text string) (ignore, error) {
	var all ignore
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rest, keep := strings.CutPrefix(line, "!")
		if strings.ContainsAny(rest, `[\`) {
			return nil, fmt.Errorf("pattern %q has a class or an escape", line)
		}
		rest = strings.TrimPrefix(path.Clean(strings.TrimSpace(rest)), "/")
		re, err := regexp.Compile(expression(rest))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", line, err)
		}
		all = append(all, pattern{line, keep, re})
	}
	return all, nil
}

// expression is a pattern as a regular expression: * and ? stay within a name, ** spans folders, none included.
func expression(glob string) string {
	var out strings.Builder
	out.WriteString("^")
	for glob != "" {
		switch {
		case glob == "**":
			out.WriteString(".*")
			glob = ""
		case strings.HasPrefix(glob, "**"):
			out.WriteString("(.*/)?")
			glob = strings.TrimPrefix(glob[2:], "/")
		case glob[0] == '*':
			out.WriteString("[^/]*")
			glob = glob[1:]
		case glob[0] == '?':
			out.WriteString("[^/]")
			glob = glob[1:]
		default:
			out.WriteString(regexp.QuoteMeta(glob[:1]))
			glob = glob[1:]
		}
	}
	return out.String() + "$"
}

// drops tells whether a file, by its slash-separated path from the top, stays out of the build.
func (all ignore) drops(name string) bool {
	dropped := false
	for _, p := range all {
		if p.matches(name) {
			dropped = !p.keep
		}
	}
	return dropped
}

func (p pattern) matches(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if p.re.MatchString(name) {
			return true
		}
	}
	return false
}

// What the rules of .dockerignore say, by the examples of their documentation.
func TestIgnoreRules(t *testing.T) {
	for _, c := range []struct{ file, kept, dropped string }{
		{"", "a a/b .git/config", ""},
		{"# a comment\n\n  a  \n", "b b/a", "a a/b a/b/c"},
		{"/a", "b/a", "a a/b"},
		{"*/temp*", "temp temp/x a/b/temp", "a/temp a/temporary.txt a/temporary/x"},
		{"*/*/temp*", "a/temp", "a/b/temporary.txt a/b/temp/x"},
		{"temp?", "temp a/tempa temp/a", "tempa tempb tempa/x"},
		{"**/*.go", "go a/go", "a.go a/b.go a/b/c.go a.go/x"},
		{"**/testdata", "a/testdatas", "testdata/x a/testdata/x a/b/testdata/c/d"},
		{"*.md\n!README.md", "README.md a.txt docs/b.md", "a.md"},
		{"*.md\n!README*.md\nREADME-secret.md", "README-a.md", "README-secret.md"},
		{"*.md\nREADME-secret.md\n!README*.md", "README-secret.md", "a.md"},
		{"**\n!**/*.go\n**/*_test.go", "a.go a/b.go", "a_test.go a/b_test.go a b/c"},
		{"*\n!a", "a a/b", "b b/a"},
		{".*", "a/.env", ".env .git/config"},
		{"a+b.c", "aab.c a+bxc", "a+b.c"},
	} {
		rules, err := parseIgnore(c.file)
		if err != nil {
			t.Fatalf("%q: %v", c.file, err)
		}
		for _, name := range strings.Fields(c.kept) {
			if rules.drops(name) {
				t.Errorf("%q drops %s", c.file, name)
			}
		}
		for _, name := range strings.Fields(c.dropped) {
			if !rules.drops(name) {
				t.Errorf("%q keeps %s", c.file, name)
			}
		}
	}
	for _, file := range []string{"[ab]", `a\*`} {
		if _, err := parseIgnore(file); err == nil {
			t.Errorf("%q is taken, and would be misread", file)
		}
	}
}

// Whatever lies about in a user's folder, an image is built from the sidecar's code alone.
func TestOurIgnoreLetsInTheCodeAlone(t *testing.T) {
	rules := ourIgnore(t)
	for _, name := range strings.Fields(`go.mod go.sum LICENSE cmd/sidecar/main.go limit/spend.lua newroom/deep/file.go admin/openapi.json
		admin/page/index.html admin/page/page.css admin/page/page.js`) {
		if rules.drops(name) {
			t.Errorf("%s stays out, and the build needs it", name)
		}
	}
	for _, name := range strings.Fields(`.git/config .git/hooks/x.go .env .ssh/id_ed25519 .tools/envoy/envoy .netrc kubeconfig secrets/tls.key
		tls.pem go.work docker-compose.override.yaml cmd/sidecar/main_test.go limit/script_test.go identity/testdata/fuzz/x
		identity/testdata/x.go test/servers/redis.go tools/go.mod tools/packages bin/sidecar bin/x.go examples/rules/shop.yaml docs/x.go
		deploy/x.go bench/x.go Dockerfile .dockerignore README.md sub/go.mod`) {
		if !rules.drops(name) {
			t.Errorf("%s enters the build", name)
		}
	}
}
