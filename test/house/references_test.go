package house

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"log/slog"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/door/connlimit"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/rules/xds"
	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/telemetry"
	"github.com/spillway-mesh/spillway/test/must"
)

// update writes the references anew in place of comparing them: make docs.
var update = flag.Bool("update", false, "write docs/reference/metrics.md, docs/reference/environment.md, "+
	"docs/reference/api.md and docs/reference/rules.schema.json anew")

// keep compares a page with what the code yields, or writes it.
func keep(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	if got := page(t, name); got != want {
		t.Errorf("%s is not what the code says: run make docs", name)
	}
}

// family is one metric as a scrape shows it.
type family struct {
	name, kind, help string
	labels           []string
}

// wiredTelemetry is metrics of which every one has a value.
func wiredTelemetry(t *testing.T) *telemetry.Telemetry {
	t.Helper()
	m := telemetry.New(telemetry.Config{Version: "v"})
	for _, hit := range []telemetry.Hit{
		{Hits: 1, Charged: 1, Capacity: 1, Left: 1}, {Hits: 2, Capacity: 1, Left: 1, Over: true, Shadow: true},
		{Hits: 1, Over: true, Cached: true},
	} {
		m.Count(m.Series("domain", []string{"key", "value"}), hit)
	}
	rule := m.Rule("domain", "rule", "user")
	m.Decided(rule, engine.Allowed)
	m.Degraded(rule, "timeout")
	m.StoreAway()
	m.StoreFailed("timeout")
	m.StoreCalled("", true, time.Millisecond)
	m.Panicked()
	m.Exceeded("bytes")
	m.Loaded("hash", time.Unix(1, 0))
	m.Measure(func() any {
		return sidecar.Stats{
			Memory: new(memory.Stats), Share: new(memory.Stats), Profiles: new(profiles.Stats),
			Journal: new(journal.Stats), Recent: new(live.RecentStats),
			Redis: &store.RedisStats{Servers: []store.ServerStats{{Name: "a:1"}}}, XDS: &xds.Status{Version: "v"},
			Live: &sidecar.LiveStats{Domains: map[string]int{"domain": 1}}, Connections: connlimit.Stats{
				Open: map[string]int64{"grpc": 0}, Closed: map[string]int64{"room": 0},
			},
		}
	})
	m.Measure(func() any {
		archive := &telemetry.ControlArchive{LastRun: time.Unix(1, 0)}
		return telemetry.ControlStats{Streams: []telemetry.ControlStream{{Stream: "usage"}}, Archive: archive}
	})
	m.Lines(&telemetry.Lines{})
	statsd := m.Statsd(telemetry.StatsdConfig{Address: "127.0.0.1:1", Every: time.Hour})
	t.Cleanup(func() { statsd.Close(context.Background()) })
	decisions := m.DecisionLog(telemetry.DecisionLogConfig{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { decisions.Close() })
	call := m.Unary(telemetry.GRPC{Methods: []string{"/s/M"}, Log: slog.New(slog.DiscardHandler)})
	must.Get(call(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/M"},
		func(context.Context, any) (any, error) {
			return "", nil
		}))(t)
	return m
}

var (
	commentLine = regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)`)
	sampleLine  = regexp.MustCompile(`^([a-zA-Z_:]+)(?:\{(.*)\})? \S+$`)
	labelInLine = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
)

// families reads a scrape.
func families(t *testing.T, m *telemetry.Telemetry) []*family {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var all []*family
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if c := commentLine.FindStringSubmatch(line); c != nil {
			if c[1] == "HELP" {
				all = append(all, &family{name: c[2], help: c[3]})
				continue
			}
			all[len(all)-1].kind = c[3]
			continue
		}
		s := sampleLine.FindStringSubmatch(line)
		if s == nil {
			t.Fatalf("a scrape has the line %q", line)
		}
		of := all[len(all)-1]
		for _, l := range labelInLine.FindAllStringSubmatch(s[2], -1) {
			if l[1] != "le" && !slices.Contains(of.labels, l[1]) {
				of.labels = append(of.labels, l[1])
			}
		}
	}
	return all
}

// TestReferenceOfTheRuleFile keeps the JSON Schema of the rule file.
func TestReferenceOfTheRuleFile(t *testing.T) {
	keep(t, "docs/reference/rules.schema.json", string(rules.Schema()))
}

func TestReferenceOfMetrics(t *testing.T) {
	own, peer := new(strings.Builder), new(strings.Builder)
	runtime := 0
	for _, f := range families(t, wiredTelemetry(t)) {
		to := own
		switch {
		case strings.HasPrefix(f.name, "ratelimit_"):
			to = peer
		case strings.HasPrefix(f.name, "go_"), strings.HasPrefix(f.name, "process_"):
			runtime++
			continue
		case !strings.HasPrefix(f.name, "spillway_"):
			t.Errorf("%s begins with neither spillway_ nor ratelimit_", f.name)
		}
		kind := f.kind
		byName := "gauge"
		if strings.HasSuffix(f.name, "_total") {
			byName = "counter"
		}
		if to == own && kind == byName {
			kind = ""
		}
		if len(f.labels) > 0 {
			kind = strings.TrimSpace(kind + " by `" + strings.Join(f.labels, "`, `") + "`")
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", f.name, kind, f.help)
	}
	if runtime == 0 {
		t.Error("the metrics of the Go runtime and the process are missing")
	}
	keep(t, "docs/reference/metrics.md", fmt.Sprintf(metricsPage, own, peer))
}

const metricsPage = `# Metrics

Every metric, from the code (` + "`make docs`" + `), on ` + "`/metrics`" + ` of the debug port, and of
` + "`PROMETHEUS_ADDR`" + ` with ` + "`USE_PROMETHEUS`" + `. [Observability](../explain/observability.md) explains
them, [deploy/](../../deploy) has a dashboard and alerts.

Labels come from the configuration. Values of requests become labels only where a rule asks for it
(` + "`detailed_metric`" + `, ` + "`value_to_metric`" + `): at most 1,000; the others count under the key
` + "`other`" + `. ` + "`EXTRA_TAGS`" + ` adds labels to every metric. A counter with labels appears once it has
counted something. Durations are in seconds; histograms have buckets from 50 µs, doubling, and native ones.
` + "`spillway_control_*`" + ` are on ` + "`/metrics`" + ` of the control plane's port alone.

## Spillway's own

Those that end in ` + "`_total`" + ` are counters, the others gauges unless a type is named.

| name | type, labels | what |
| --- | --- | --- |
%s
## Under the reference server's names

Dashboards for the reference server work on these. Levels of a descriptor below the second count under ` + "`key2`" +
	` of the second.

| name | type, labels | what |
| --- | --- | --- |
%s
` + "`go_*`" + ` and ` + "`process_*`" + ` describe the Go runtime and the process.
`

// setting is one variable as the code declares it.
type setting struct{ name, kind, value, what string }

// settingsOf reads the fields of a struct that have variables.
func settingsOf(t *testing.T, group *ast.StructType, prefix string) []setting {
	t.Helper()
	var all []setting
	for _, f := range group.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		name := tag.Get("env")
		if name == "" || name == "-" {
			continue
		}
		s := setting{name: prefix + name, kind: kindOf(f.Type), value: tag.Get("envDefault"),
			what: strings.TrimSpace(f.Comment.Text())}
		if s.what == "" {
			s.what = strings.Join(strings.Fields(strings.TrimPrefix(f.Doc.Text(), f.Names[0].Name+" ")), " ")
			s.what = strings.TrimPrefix(s.what, "is ")
		}
		if _, pointer := f.Type.(*ast.StarExpr); s.value == "" && s.kind == "bool" && !pointer {
			s.value = "false"
		}
		if len(s.what) < 8 {
			t.Errorf("%s means %q: its comment in the code is its meaning", s.name, s.what)
		}
		all = append(all, s)
	}
	return all
}

// kindOf is what a variable takes.
func kindOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return kindOf(e.X)
	case *ast.MapType:
		return "list"
	case *ast.SelectorExpr:
		return strings.ToLower(e.Sel.Name)
	case *ast.Ident:
		switch e.Name {
		case "uint16":
			return "port"
		case "int", "float64":
			return "number"
		case "Age":
			return "duration"
		case "SocketMode":
			return "octal"
		}
		return e.Name
	}
	return ""
}

// structs are the struct types of a room with their comments.
func structs(t *testing.T, room string) map[string]*ast.GenDecl {
	t.Helper()
	found := map[string]*ast.GenDecl{}
	for _, s := range sources(t) {
		if s.room != room || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || len(g.Specs) != 1 {
				continue
			}
			if spec, ok := g.Specs[0].(*ast.TypeSpec); ok {
				if _, is := spec.Type.(*ast.StructType); is {
					found[spec.Name.Name] = g
				}
			}
		}
	}
	return found
}

func structOf(g *ast.GenDecl) *ast.StructType {
	return g.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
}

// writeGroup writes the table of one group of settings, and returns their names.
func writeGroup(t *testing.T, out *strings.Builder, group *ast.Field, g *ast.GenDecl) []string {
	t.Helper()
	field, kind, prefix, rows := group.Names[0].Name, g.Specs[0].(*ast.TypeSpec).Name.Name, "", new(strings.Builder)
	if group.Tag != nil {
		prefix = reflect.StructTag(strings.Trim(group.Tag.Value, "`")).Get("envPrefix")
	}
	intro := strings.Join(strings.Fields(g.Doc.Text()), " ")
	if rest, found := strings.CutPrefix(intro, kind+" is "); found {
		intro = strings.ToUpper(rest[:1]) + rest[1:]
	}
	var names []string
	for _, s := range settingsOf(t, structOf(g), prefix) {
		names = append(names, s.name)
		switch {
		case s.value == "" && s.kind == "string":
			s.kind = ""
		case s.value != "":
			s.kind += " (`" + s.value + "`)"
		}
		fmt.Fprintf(rows, "| `%s` | %s | %s |\n", s.name, s.kind, s.what)
	}
	if field != kind {
		fmt.Fprintf(out, "## %s\n\nThe variables of %s once more, with the same defaults, %s: `%s`.\n\n",
			field, kind, strings.TrimSpace(group.Comment.Text()), strings.Join(names, "`, `"))
		return names
	}
	fmt.Fprintf(out, "## %s\n\n%s\n\n| name | takes (default) | what |\n| --- | --- | --- |\n%s\n", field, intro, rows)
	return names
}

func TestReferenceOfTheEnvironment(t *testing.T) {
	types := structs(t, "sidecar/settings")
	out := new(strings.Builder)
	var names []string
	for _, group := range structOf(types["Config"]).Fields.List {
		if ident, ok := group.Type.(*ast.Ident); ok && types[ident.Name] != nil {
			names = append(names, writeGroup(t, out, group, types[ident.Name])...)
		}
	}
	slices.Sort(names)
	if read := settings.Variables(); !slices.Equal(names, read) {
		t.Errorf("the page lists %d variables and the sidecar reads %d", len(names), len(read))
	}
	control := writeGroup(t, out, &ast.Field{Names: []*ast.Ident{ast.NewIdent("Control")}}, types["Control"])
	if read := settings.ControlVariables(); !slices.Equal(control, read) {
		t.Errorf("the page lists %v and the control plane reads %v", control, read)
	}
	differ, ignored := peers(settings.Better), peers(settings.Ignored, settings.NotYet)
	keep(t, "docs/reference/environment.md", fmt.Sprintf(environmentPage, out, differ, ignored))
}

// peers is a list of the reference server's variables with these verdicts: one item for each note.
func peers(verdicts ...settings.Verdict) string {
	sameNote := map[string][]string{}
	var notes []string
	for _, v := range settings.PeerVariables() {
		if !slices.Contains(verdicts, v.Verdict) {
			continue
		}
		if sameNote[v.Note] == nil {
			notes = append(notes, v.Note)
		}
		sameNote[v.Note] = append(sameNote[v.Note], v.Name)
	}
	out := new(strings.Builder)
	for _, note := range notes {
		fmt.Fprintf(out, "- `%s`: %s\n", strings.Join(sameNote[note], "`, `"), note)
	}
	return out.String()
}

const environmentPage = `# Environment

Every variable that the sidecar reads. It has neither flags nor another file of settings. This page comes from the code
(` + "`make docs`" + `). A variable that is set but empty counts as not set. Wrong values end the start; the log lists
all of them. Durations are written like 10ms, 5s or 24h; lists like name:value,name:value.
Where no type is named, a text.

%s## The reference server's variables

They are read with the same meaning, but for these.

**Better**: read, with a difference.

%s
**Ignored**: not read; the log names those that are set, at start.

%s`
