// Package deploy tests what is deployed beside the sidecar: alerts, dashboard, runbook and the image that manifests
// name.
package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/must"
)

// alert is one rule of deploy/prometheus/alerts.yaml.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// page returns a file of the tree.
func page(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("../..", name)))(t)
	return string(text)
}

// readYAML decodes a file, of which every key must be known.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(page(t, name)))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
}

// alerts are all of them.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	readYAML(t, "deploy/prometheus/alerts.yaml", &file)
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("deploy/prometheus/alerts.yaml has %d alerts: it has another shape than this test reads", len(all))
	}
	return all
}

// promtool runs Prometheus' own checker in a folder.
func promtool(t *testing.T, folder string, args ...string) {
	t.Helper()
	command := exec.Command("promtool", args...)
	command.Dir = folder
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v (make tools installs it)\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "../../deploy/prometheus", "check", "rules", "alerts.yaml")
	promtool(t, "../../deploy/prometheus", "test", "rules", "alerts_test.yaml")
}

func TestEveryAlertIsHeldToFireAndToStayQuiet(t *testing.T) {
	var file struct {
		RuleFiles          []string `yaml:"rule_files"`
		EvaluationInterval string   `yaml:"evaluation_interval"`
		Tests              []struct {
			Name, Interval string
			InputSeries    []any `yaml:"input_series"`
			AlertRuleTest  []struct {
				EvalTime  string `yaml:"eval_time"`
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "deploy/prometheus/alerts_test.yaml", &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, step := range test.AlertRuleTest {
			fires[step.Alertname] = fires[step.Alertname] || len(step.ExpAlerts) > 0
			quiet[step.Alertname] = quiet[step.Alertname] || len(step.ExpAlerts) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !quiet[a.Alert] {
			t.Errorf("%s: a test sees it fire: %v, and stay quiet: %v; want both", a.Alert, fires[a.Alert],
				quiet[a.Alert])
		}
	}
}

func TestEveryAlertHasItsSectionInTheRunbook(t *testing.T) {
	sections := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(page(t, "docs/guides/runbook.md"),
		-1) {
		sections[found[1]] = true
	}
	for _, a := range alerts(t) {
		if !sections[a.Alert] {
			t.Errorf("docs/guides/runbook.md has no section %s", a.Alert)
		}
		delete(sections, a.Alert)
		if want := "docs/guides/runbook.md#" +
			strings.ToLower(a.Alert); !strings.HasSuffix(a.Annotations["runbook_url"], want) {
			t.Errorf("%s has the runbook_url %q, want one that ends with %s", a.Alert, a.Annotations["runbook_url"],
				want)
		}
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"},
			a.Labels["severity"]) {
			t.Errorf("%s needs a summary and a severity, and has %v and %v", a.Alert, a.Annotations, a.Labels)
		}
	}
	for name := range sections {
		t.Errorf("docs/guides/runbook.md has a section %s, and there is no such alert", name)
	}
}

// dashboard is what the tests look at of a file of deploy/grafana.
type dashboard struct {
	UID           string
	SchemaVersion int
	Inputs        any `json:"__inputs"`
	Annotations   struct{ List []struct{ Expr string } }
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct {
			Expr       string
			Datasource struct{ UID string }
		}
	}
}

// dashboards are all of them, by file.
func dashboards(t *testing.T) map[string]*dashboard {
	t.Helper()
	all := map[string]*dashboard{}
	for _, file := range must.Get(filepath.Glob("../../deploy/grafana/*.json"))(t) {
		d := new(dashboard)
		err := json.Unmarshal([]byte(page(t, strings.TrimPrefix(file, "../../"))), d)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	if len(all) < 4 {
		t.Fatalf("deploy/grafana has %d dashboards, want one for each of four questions", len(all))
	}
	return all
}

func TestDashboardsCanBeProvisioned(t *testing.T) {
	uids := map[string]bool{}
	for file, d := range dashboards(t) {
		t.Run(file, func(t *testing.T) { provisioned(t, d) })
		uids[d.UID] = true
	}
	if len(uids) != len(dashboards(t)) {
		t.Errorf("two dashboards have one uid: %v", uids)
	}
}

func provisioned(t *testing.T, d *dashboard) {
	t.Helper()
	if d.UID == "" || d.SchemaVersion < 30 || d.Inputs != nil {
		t.Errorf("uid %q, schemaVersion %d, __inputs %v: want a uid, 30 or more, and none", d.UID, d.SchemaVersion,
			d.Inputs)
	}
	if first := d.Templating.List[0]; first.Type != "datasource" || first.Name != "datasource" {
		t.Errorf("the first variable is %v, want the datasource", first)
	}
	seen := map[int]bool{}
	for i, p := range d.Panels {
		if seen[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("the panel %q asks %q, want the variable", p.Title, target.Datasource.UID)
			}
		}
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X+a.W > 24 || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("the panels %q and %q overlap, or leave the page", p.Title, other.Title)
			}
		}
	}
}

// queries are all expressions of the dashboard and the alerts, by where they stand. Variables have values.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	values := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$domain", ".*")
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for i, target := range p.Targets {
				all[fmt.Sprintf("%s, panel %q, query %d", file, p.Title, i+1)] = values.Replace(target.Expr)
			}
		}
		for i, a := range d.Annotations.List {
			all[fmt.Sprintf("%s, annotation %d", file, i+1)] = values.Replace(a.Expr)
		}
		for _, v := range d.Templating.List {
			if v.Definition != "" {
				inner := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
				if inner == nil {
					t.Fatalf("the variable %s is %q, which this test cannot read", v.Name, v.Definition)
				}
				all[file+", variable "+v.Name] = fmt.Sprintf("count by (%s) (%s)", inner[2], inner[1])
			}
		}
	}
	for _, a := range alerts(t) {
		all["alert "+a.Alert] = a.Expr
	}
	for i, found := range regexp.MustCompile(`(?m)^\| [^|]*\? \| (.*) \|$`).FindAllStringSubmatch(
		page(t, "docs/explain/observability.md"), -1) {
		for j, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(found[1], -1) {
			all[fmt.Sprintf("docs/explain/observability.md, question %d, query %d", i+1, j+1)] = code[1]
		}
	}
	return all
}

func TestQueriesParse(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n- name: queries\n  rules:\n")
	for i, where := range slices.Sorted(maps.Keys(queries(t))) {
		text, err := json.Marshal(queries(t)[where]) // JSON is YAML
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rules, "  # %s\n  - {record: 'query:%d', expr: %s}\n", where, i, text)
	}
	folder := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(folder, "queries.yaml"), []byte(rules.String()), 0o644))
	promtool(t, folder, "check", "rules", "--lint=none", "queries.yaml")
}

var (
	metricRow    = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w*)([^|]*) \\|")
	inBackquotes = regexp.MustCompile("`([^`]+)`")
	inQuotes     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	selector     = regexp.MustCompile(`\b((?:spillway|ratelimit|process|go)_\w+|up)\b(?:\{([^}]*)\})?`)
	matcher      = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping     = regexp.MustCompile(`\bby \(([^)]*)\)`)
	scrapeOnly   = []string{"instance", "job"}
)

func TestQueriesNameMetricsAndLabelsThatExist(t *testing.T) {
	// The client library of Prometheus adds the last two.
	known := map[string][]string{"up": nil, "process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil}
	for _, row := range metricRow.FindAllStringSubmatch(page(t, "docs/reference/metrics.md"), -1) {
		var labels []string
		for _, label := range inBackquotes.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, label[1])
		}
		known[row[1]] = labels
		if row[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[row[1]+suffix] = append([]string{"le"}, labels...)
			}
		}
	}
	for where, query := range queries(t) {
		query = inQuotes.ReplaceAllString(query, `""`)
		labels, used := slices.Clone(scrapeOnly), selector.FindAllStringSubmatch(query, -1)
		if len(used) == 0 {
			t.Errorf("%s names no metric: %s", where, query)
		}
		for _, s := range used {
			own, exists := known[s[1]]
			if !exists {
				t.Errorf("%s names %s, which does not exist", where, s[1])
			}
			labels = append(labels, own...)
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(own, m[1]) && !slices.Contains(scrapeOnly, m[1]) {
					t.Errorf("%s asks %s for the label %s, which it has not", where, s[1], m[1])
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(query, -1) {
			for _, label := range strings.Split(g[1], ", ") {
				if !slices.Contains(labels, label) {
					t.Errorf("%s groups by %s, which none of its metrics has", where, label)
				}
			}
		}
	}
}

// TestManifestsNameTheImageOfTheChart: `latest` is a tag that no release makes, and would change pods one by one by
// itself.
func TestManifestsNameTheImageOfTheChart(t *testing.T) {
	version := regexp.MustCompile(`(?m)^appVersion: (\S+)$`).FindStringSubmatch(
		page(t, "deploy/helm/spillway/Chart.yaml"))
	if version == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	image := regexp.MustCompile(`image: ghcr\.io/spillway-mesh/spillway(\S*)`)
	files := must.Get(filepath.Glob("../../examples/*/*.yaml"))(t)
	found := 0
	for _, file := range files {
		for _, m := range image.FindAllStringSubmatch(page(t, strings.TrimPrefix(file, "../../")), -1) {
			found++
			if m[1] != ":"+version[1] {
				t.Errorf("%s has %s, want the tag %s", file, m[0], version[1])
			}
		}
	}
	if found == 0 {
		t.Error("no manifest of the examples names the image")
	}
}
