package editor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// modeline names the schema to the language server, as seen from examples/rules.
const modeline = "# yaml-language-server: $schema=../../docs/reference/rules.schema.json\n"

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(name))(t)
	return string(text)
}

func glob(t *testing.T, parts ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(append([]string{servers.Root(t)}, parts...)...))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %v: %v", parts, err)
	}
	return files
}

// TestExamplesAreFine opens each rule file of the examples, and those within their manifests.
func TestExamplesAreFine(t *testing.T) {
	s := start(t)
	for _, file := range glob(t, "examples", "rules", "*.yaml") {
		text := readFile(t, file)
		if !strings.HasPrefix(text, modeline) {
			t.Errorf("%s does not name its schema in the first line", file)
		}
		for _, f := range s.findings(t, s.open(t, file, text)) {
			t.Errorf("%s:%v", file, f)
		}
		// The server has read the schema and did not pass over the file: it finds a mistake in it.
		if found := s.check(t, text+"rulse: []\n")[0]; len(found) != 1 {
			t.Errorf("%s with an unknown key: %v, want one finding", file, found)
		}
	}
	manifests := 0
	for _, file := range slices.Concat(glob(t, "examples", "istio", "*.yaml"), glob(t, "examples", "envoy-gateway",
		"*.yaml")) {
		for name, text := range ruleFilesIn(t, file) {
			manifests++
			for _, f := range s.check(t, modeline+text)[0] {
				t.Errorf("%s in %s: %v", name, file, f)
			}
		}
	}
	if manifests < 5 {
		t.Errorf("%d rule files found in the manifests, want at least 5", manifests)
	}
}

// ruleFilesIn returns the rule files that the ConfigMaps of a manifest hold.
func ruleFilesIn(t *testing.T, file string) map[string]string {
	t.Helper()
	files := map[string]string{}
	documents := yaml.NewDecoder(bytes.NewReader([]byte(readFile(t, file))))
	for {
		var document struct {
			Kind string            `yaml:"kind"`
			Data map[string]string `yaml:"data"`
		}
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, text := range document.Data {
			if document.Kind == "ConfigMap" && strings.Contains(text, "domain:") {
				files[name] = text
			}
		}
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestEveryKeyIsFine opens the file that has every key, and what docs/reference/rules.md shows.
func TestEveryKeyIsFine(t *testing.T) {
	texts := []string{modeline + readFile(t, filepath.Join(servers.Root(t), "rules", "testdata", "full.yaml"))}
	page := readFile(t, filepath.Join(servers.Root(t), "docs", "reference", "rules.md"))
	for _, block := range yamlBlock.FindAllStringSubmatch(page, -1) {
		text := block[1]
		if !strings.HasPrefix(text, "domain:") {
			text = "domain: page\n" + text
		}
		texts = append(texts, modeline+text)
	}
	for i, found := range start(t).check(t, texts...) {
		if len(found) > 0 {
			t.Errorf("%v in\n%s", found, texts[i])
		}
	}
}

// TestMistakesAreFound: what an editor shows for some mistakes, and where.
func TestMistakesAreFound(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ text, want string }{
		{"rules: []\n", `2:1: Missing property "domain".`},
		{"domain: shop\nrulse: []\n", "3:1: Property rulse is not allowed."},
		{"domain: shop\nheaders: ieft\n", `3:10: Value is not accepted. Valid values: "both", "ietf", "none", ` +
			`"x-ratelimit".`},
		{"domain: shop\nrules:\n  - { name: a, scope: usr, limit: 5/1m }\n", "4:23: Value is not accepted."},
		{"domain: shop\nrules:\n  - { name: a, scope: user, limit: { count: 5, per: 1y } }\n", "4:53: "},
		{"domain: shop\nrules:\n  - { name: a, scope: user, limit: 5 per minute }\n",
			"4:36: String does not match the pattern"},
		{"domain: shop\nrules:\n  - { name: a, scope: user, limit: { count: many, per: 1m } }\n", "4:45: "},
		{"domain: shop\nrules:\n  - { scope: user, limit: 5/1m }\n", `4:5: Missing property "name".`},
		{"domain: shop\ndescriptors:\n  - key: a\n    descriptors:\n      - { kye: b }\n",
			"6:11: Property kye is not allowed."},
		{"domain: shop\nidentity:\n  api_keys: { header: x, keys: [{ id: a, sha256: secret }] }\n",
			"4:50: String does not match the pattern"},
	} {
		found := s.check(t, modeline+c.text)[0]
		if !slices.ContainsFunc(found, func(f finding) bool { return strings.HasPrefix(f.String(), c.want) }) {
			t.Errorf("%s: %v, want %s", c.text, found, c.want)
		}
	}
}

// expressible are the problems that a schema can express: about one key or value. The decoder alone finds the others,
// which are about several together, about how a text is written, or about YAML itself.
var expressible = regexp.MustCompile(`^# want: \d+:\d+: (unknown .* "|[a-z].* wants (a map|a list|text|a duration|a ` +
	`time)|.* must be (between|at least|a (duration|limit|whole number|time))|.* must have a window|` +
	`.* stands in place of|.* is an empty list|.* has no (domain|count|window|cost|issuer|jwks|id|sha256))`)

// TestBadFilesAreFound: the language server finds what the decoder refuses, where a schema can express it.
func TestBadFilesAreFound(t *testing.T) {
	var files, texts []string
	for _, file := range glob(t, "rules", "testdata", "bad", "*.yaml") {
		text := readFile(t, file)
		// A number beyond 2^53 is rounded before it is compared.
		if expressible.MatchString(text) && !strings.Contains(text, "9007199254740993") {
			files, texts = append(files, filepath.Base(file)), append(texts, modeline+text)
		}
	}
	if len(files) < 80 {
		t.Errorf("only %d bad files have a problem that a schema can express", len(files))
	}
	for i, found := range start(t).check(t, texts...) {
		if len(found) == 0 {
			t.Errorf("nothing is found in %s", files[i])
		}
	}
}
