package house

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// yamlFiles maps the YAML files of this repository to the test that checks them: a file that holds that text. lacks
// names what no checker looks at.
var yamlFiles = []struct{ pattern, test, text, lacks string }{
	{"examples/rules/*.yaml", "rules/examples_test.go", "func TestExamplesLoadWithoutAWarning", ""},
	{"examples/rules/tests/*.yaml", "cmd/spillway/main_test.go", "func TestExamplesPassTheirTests", ""},
	{"examples/replay/*.yaml", "cmd/spillway/docs_test.go", "func TestPagesShowWhatTheProgramPrints", ""},
	{"whatif/ruletest/testdata/*.yaml", "whatif/ruletest/ruletest_test.go", "rules: rules.yaml", ""},
	{"examples/envoy/envoy.yaml", "test/integration/config_test.go", "func TestExampleIsValid", ""},
	{"examples/envoy/ext_authz.yaml", "test/integration/authz_world_test.go", "func TestAuthzExampleIsValid", ""},
	{"examples/envoy/tls.yaml", "test/integration/tls_test.go", "func TestEnvoyAsksOverTLS", ""},
	{"examples/envoy/demo.yaml", "test/demo/configs_test.go", "func TestEnvoyTakesItsConfigurations", ""},
	{"examples/envoy/upstream.yaml", "test/demo/configs_test.go", "func TestEnvoyTakesItsConfigurations", ""},
	{"examples/envoy/docker-compose.yaml", "test/demo/schema/schema_test.go", "docker-compose.yaml", ""},
	{"examples/envoy/prometheus.yaml", "test/demo/configs_test.go", "func TestPrometheusTakesItsConfiguration", ""},
	{"examples/envoy/otel-collector.yaml", "test/demo/configs_test.go", "func TestCollectorsPipelinesAreWhole",
		"the collector itself does not read it"},
	{"examples/envoy/grafana/dashboards.yaml", "test/demo/configs_test.go", "func TestDashboardIsProvisioned",
		"Grafana itself does not read it"},
	{"examples/envoy/grafana/datasources.yaml", "test/demo/configs_test.go", "func TestDatasourcesDiffer",
		"Grafana itself does not read it"},
	{"examples/istio/*.yaml", "test/manifests/documents_test.go", "func TestEveryManifestIsOfTheAPI", ""},
	{"examples/envoy-gateway/*.yaml", "test/manifests/gateway_test.go", "func TestGatewayFilesLimitRequests", ""},
	{"deploy/backup/cronjob.yaml", "test/chart/written_test.go", "func TestWrittenCronJob", ""},
	{"deploy/prometheus/*.yaml", "test/deploy/deploy_test.go", "func TestAlertsFireWhenTheyShould", ""},
	{"deploy/helm/spillway/*.yaml", "test/chart/render_test.go", "func TestHelmLints", ""},
	{"deploy/helm/spillway/ci/*.yaml", "test/chart/render_test.go", "func TestEveryRenderingIsOfTheAPI", ""},
	{"deploy/helm/spillway/templates/*.yaml", "test/chart/render_test.go", "func TestEveryRenderingIsOfTheAPI", ""},
	{"deploy/helm/spillway/files/alerts.yaml", "test/chart/written_test.go", "func TestWrittenCopies", ""},
	{"deploy/helm/spillway/files/rules.yaml", "test/chart/serve_test.go", "func TestRulesAreLoadedByTheSidecar", ""},
	{"rules/testdata/bad/*.yaml", "rules/golden_test.go", "func TestBadFiles", ""},
	{"rules/testdata/*.yaml", "rules/decode_test.go", "func TestEveryKeyIsDecoded", ""},
	{"docs/reference/answers.openapi.yaml", "test/integration/contract_test.go", "func TestAnswersKeepTheirContract",
		""},
	{".golangci.yml", "tools/test-outer", "golangci-lint run", "keys that golangci-lint does not know"},
}

// files are those of the repository whose names end so. Folders that begin with a dot, and bin, are not of it.
func files(t *testing.T, ends ...string) []string {
	t.Helper()
	var all []string
	must.Do(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || path == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() && slices.Contains(ends, filepath.Ext(path)) {
			all = append(all, filepath.ToSlash(path))
		}
		return nil
	}))
	return all
}

func TestEveryYAMLFileHasItsChecker(t *testing.T) {
	used := make([]bool, len(yamlFiles))
	for _, name := range files(t, ".yaml", ".yml") {
		at := slices.IndexFunc(yamlFiles, func(f struct{ pattern, test, text, lacks string }) bool {
			match, err := filepath.Match(f.pattern, name)
			return err == nil && match
		})
		if at < 0 {
			t.Errorf("%s: no test is known to check it", name)
			continue
		}
		used[at] = true
	}
	for i, f := range yamlFiles {
		if !used[i] {
			t.Errorf("there is no %s", f.pattern)
		}
		if !strings.Contains(page(t, f.test), f.text) {
			t.Errorf("%s is checked by %q of %s, which is not there", f.pattern, f.text, f.test)
		}
	}
}

// checkedElsewhere are pages whose blocks a test of another package loads.
var checkedElsewhere = map[string]string{
	"docs/reference/rules.md":       "rules/examples_test.go",
	"docs/explain/observability.md": "test/integration/trace_test.go",
}

// block is a piece of YAML on a page.
type block struct {
	where string // page and line
	text  string
}

var fence = regexp.MustCompile("(?m)^( *)```([a-z]*)$")

// blocks are those of a page, without the page's own indentation. Every fence must name its language: YAML without its
// name would not be checked.
func blocks(t *testing.T, name string) []block {
	t.Helper()
	var all []block
	lines := strings.Split(page(t, name), "\n")
	for i := 0; i < len(lines); i++ {
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			lines[i] = strings.TrimPrefix(lines[i], open[1])
		}
		switch open[2] {
		case "yaml":
			all = append(all, block{fmt.Sprintf("%s:%d", name, begin), strings.Join(lines[begin:i], "\n") + "\n"})
		case "sh", "text", "mermaid":
		default:
			t.Errorf("%s:%d: a block of %q is none that this test knows", name, begin, open[2])
		}
	}
	return all
}

func TestEveryYAMLBlockIsLoaded(t *testing.T) {
	var quotable [][]string
	for _, name := range files(t, ".yaml") {
		if !strings.Contains(name, "testdata") {
			quotable = append(quotable, bare(page(t, name)))
		}
	}
	seen := 0
	for _, name := range files(t, ".md") {
		for _, b := range blocks(t, name) {
			seen++
			if test, found := checkedElsewhere[name]; found {
				if !strings.Contains(page(t, test), filepath.Base(name)) {
					t.Errorf("%s is not checked by %s", name, test)
				}
				continue
			}
			check(t, b, quotable)
		}
	}
	if seen < 30 {
		t.Errorf("only %d blocks of YAML were found", seen)
	}
}

// check loads a block by the checker of its kind.
func check(t *testing.T, b block, quotable [][]string) {
	t.Helper()
	switch {
	case slices.ContainsFunc(quotable, func(file []string) bool { return holds(file, bare(b.text)) }):
		// A piece of a file that has its own checker.
	case strings.HasPrefix(b.text, "domain:"):
		d, problems := rules.Decode(b.where, []byte(b.text))
		_, more := descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
		problems = append(problems, more...)
		if len(problems) > 0 {
			t.Error(rules.FormatProblems(problems))
		}
	case strings.HasPrefix(b.text, "- name: envoy.filters.http."):
		checkFilter(t, b)
	default:
		t.Errorf("%s: neither rules, nor a filter of Envoy, nor a piece of a file that is checked:\n%s", b.where,
			b.text)
	}
}

// checkFilter hands Envoy its example with one more filter before the router.
func checkFilter(t *testing.T, b block) {
	t.Helper()
	const before = "          - name: envoy.filters.http.router\n"
	example := page(t, "examples/envoy/envoy.yaml")
	if strings.Count(example, before) != 1 {
		t.Fatalf("the example has no place before %q", before)
	}
	indented := regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSuffix(b.text, "\n"), "          ") + "\n"
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	must.Do(t, os.WriteFile(file, []byte(strings.Replace(example, before, indented+before, 1)), 0o600))
	servers.ValidateEnvoy(t, file)
	for _, named := range regexp.MustCompile(`cluster_name: ([a-z]+)`).FindAllStringSubmatch(b.text, -1) {
		if !strings.Contains(example, "\n  - name: "+named[1]+"\n") {
			t.Errorf("%s: the example has no cluster %s", b.where, named[1])
		}
	}
}

// bare are the lines of a YAML text without comments and blank lines, which are the page's own.
func bare(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " #")
		line = strings.TrimRight(line, " ")
		if line != "" && !strings.HasPrefix(strings.TrimLeft(line, " "), "#") {
			all = append(all, line)
		}
	}
	return all
}

// holds reports whether a piece stands somewhere in the lines, all of it indented by as much more or less.
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

// The quick start shows nothing but what a test runs: targets of make, lines of README.md that test/integration
// runs, and the demo's scripts, which test/demo runs.
func TestQuickStartShowsCommandsThatRun(t *testing.T) {
	known := []*regexp.Regexp{
		regexp.MustCompile(`^docker compose -f examples/envoy/docker-compose\.yaml (up --build --wait|down)$`),
		regexp.MustCompile(`^examples/envoy/(try|outage)\.sh$`),
	}
	readme, makefile := page(t, "README.md"), page(t, "Makefile")
	target := regexp.MustCompile(`^(?:([A-Z_]+)=\S+ )?make ([a-z]+)$`)
	for _, found := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(
		page(t, "docs/guides/quick-start.md"), -1) {
		for line := range strings.Lines(found[1]) {
			line = strings.TrimSpace(line)
			made := target.FindStringSubmatch(line)
			switch {
			case strings.Contains(line, "curl ") && strings.Contains(readme, line):
			case made != nil && strings.Contains(makefile, "\n"+made[2]+":") &&
				(made[1] == "" || slices.Contains(settings.Variables(), made[1])):
			case slices.ContainsFunc(known, func(k *regexp.Regexp) bool { return k.MatchString(line) }):
			default:
				t.Errorf("docs/guides/quick-start.md shows %q, which no test runs", line)
			}
		}
	}
}

func TestMigrationNamesEveryKeyOfTheReferenceServer(t *testing.T) {
	text := page(t, "docs/guides/migrate.md")
	const keys = `domain descriptors key value rate_limit.unit rate_limit.requests_per_unit rate_limit.unlimited
		rate_limit.name replaces shadow_mode quota_mode detailed_metric value_to_metric share_threshold metadata`
	for _, key := range strings.Fields(keys) {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + regexp.QuoteMeta(key) +
			"`[^|]*\\| (same|better|not yet) \\|").MatchString(text) {
			t.Errorf("docs/guides/migrate.md has no verdict on the key %s", key)
		}
	}
}
