package chart

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// update writes the chart's written files anew in place of comparing them: make docs.
var update = flag.Bool("update", false, "write the chart's README, the variables in its schema, and its copies of "+
	"dashboard and alerts anew")

// keep compares a file of the chart with what it is written from, or writes it.
func keep(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join(chartDir(t), name)
	if *update {
		must.Do(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	if content(t, file) != want {
		t.Errorf("%s is not what it is written from: run make docs", name)
	}
}

// TestWrittenCopies: helm reads files inside of the chart alone, so the chart has copies.
func TestWrittenCopies(t *testing.T) {
	for name, from := range map[string]string{
		"files/dashboards/refused.json": "deploy/grafana/refused.json",
		"files/dashboards/redis.json":   "deploy/grafana/redis.json",
		"files/dashboards/cost.json":    "deploy/grafana/cost.json",
		"files/dashboards/control.json": "deploy/grafana/control.json",
		"files/alerts.yaml":             "deploy/prometheus/alerts.yaml", "files/postgres.sh": "deploy/backup/postgres.sh",
		"files/redis.sh": "deploy/backup/redis.sh"} {
		keep(t, name, content(t, filepath.Join(servers.Root(t), from)))
	}
}

// TestWrittenCronJob: clusters without helm have the same backup.
func TestWrittenCronJob(t *testing.T) {
	text := must.Get(helm(t, "template", "spillway", chartDir(t), "--namespace", "spillway", "--show-only",
		"templates/backup.yaml", "--values", filepath.Join(chartDir(t), "ci", "13-control.yaml"),
		"--set", "serviceAccount.create=false"))(t)
	ofHelm := regexp.MustCompile(`(?m)^ *(# Source|helm\.sh/|app\.kubernetes\.io/managed-by).*\n`)
	text = ofHelm.ReplaceAllString(text, "")
	keep(t, "../../backup/cronjob.yaml",
		"# Written from the chart by make docs. Change images, Secrets and bucket.\n"+text)
}

// TestWrittenSchema: the schema knows the variables of the sidecar and of the control, and no others.
func TestWrittenSchema(t *testing.T) {
	text := content(t, filepath.Join(chartDir(t), "values.schema.json"))
	for definition, variables := range map[string][]string{
		"variables": settings.Variables(), "controlVariables": settings.ControlVariables(),
	} {
		var lines []string
		for _, name := range slices.Sorted(slices.Values(variables)) {
			lines = append(lines, fmt.Sprintf("\n        %q: {\"type\": \"string\"}", name))
		}
		place := regexp.MustCompile(`(?s)("` + definition + `": \{[^{}]*"properties": \{)(.*?)(\n      \})`)
		if !place.MatchString(text) {
			t.Fatalf("values.schema.json has no place for the %s", definition)
		}
		text = place.ReplaceAllString(text, "${1}"+strings.Join(lines, ",")+"${3}")
	}
	keep(t, "values.schema.json", text)
}

// value is a value of the chart with its description.
type value struct{ path, otherwise, about string }

// values reads values.yaml: each value has a comment that begins with `# --`, or is a group of such.
func values(t *testing.T) []value {
	t.Helper()
	var document yaml.Node
	must.Do(t, yaml.Unmarshal([]byte(content(t, filepath.Join(chartDir(t), "values.yaml"))), &document))
	return describe(t, document.Content[0], "")
}

func describe(t *testing.T, group *yaml.Node, prefix string) (all []value) {
	t.Helper()
	for i := 0; i < len(group.Content); i += 2 {
		key, held := group.Content[i], group.Content[i+1]
		path := prefix + key.Value
		_, about, found := strings.Cut(key.HeadComment, "# -- ")
		switch {
		case found:
			all = append(all, value{path, inline(t, held), strings.ReplaceAll(about, "\n# ", " ")})
		case held.Kind == yaml.MappingNode:
			all = append(all, describe(t, held, path+".")...)
		default:
			t.Errorf("values.yaml:%d: %s has no description", key.Line, path)
		}
	}
	return all
}

// inline is a value on one line, as JSON writes it.
func inline(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var held any
	must.Do(t, node.Decode(&held))
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must.Do(t, encoder.Encode(held))
	return strings.TrimSpace(text.String())
}

var tableInReadme = regexp.MustCompile(`(?s)(<!-- make docs writes this table from values.yaml -->\n).*?(<!-- end -->)`)

// TestWrittenReadme: the README has a table of all values.
func TestWrittenReadme(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| value | default | what |\n| --- | --- | --- |\n")
	for _, v := range values(t) {
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.path, v.otherwise, strings.ReplaceAll(v.about, "|", `\|`))
	}
	text := content(t, filepath.Join(chartDir(t), "README.md"))
	if !tableInReadme.MatchString(text) {
		t.Fatal("README.md has no place for the values")
	}
	keep(t, "README.md", tableInReadme.ReplaceAllStringFunc(text, func(whole string) string {
		parts := tableInReadme.FindStringSubmatch(whole)
		return parts[1] + table.String() + "\n" + parts[2]
	}))
}

// TestSchemaKnowsEveryValue: what the schema describes is in values.yaml, and the other way round; helm adds global.
func TestSchemaKnowsEveryValue(t *testing.T) {
	var schema node
	must.Do(t, json.Unmarshal([]byte(content(t, filepath.Join(chartDir(t), "values.schema.json"))), &schema))
	described := map[string]bool{}
	for _, v := range values(t) {
		described[v.path] = true
		at := &schema
		for part := range strings.SplitSeq(v.path, ".") {
			if at = at.Properties[part]; at == nil {
				t.Fatalf("values.schema.json does not know %s", v.path)
			}
		}
	}
	delete(schema.Properties, "global")
	schema.walk("", func(path string) {
		if !described[path] {
			t.Errorf("values.schema.json knows %s, which values.yaml does not have", path)
		}
	})
}

// node is what the test looks at of a schema.
type node struct {
	Type       string           `json:"type"`
	Properties map[string]*node `json:"properties"`
	Additional any              `json:"additionalProperties"`
}

// walk calls found for each value that is not a group of values.
func (n *node) walk(path string, found func(path string)) {
	if len(n.Properties) == 0 {
		found(strings.TrimPrefix(path, "."))
		return
	}
	for name, inner := range n.Properties {
		inner.walk(path+"."+name, found)
	}
}
