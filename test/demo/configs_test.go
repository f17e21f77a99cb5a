package demo

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/servers"
)

// decode reads a YAML file into anything.
func decode(t *testing.T, file string, into any) {
	t.Helper()
	err := yaml.Unmarshal([]byte(read(t, file)), into)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestEnvoyTakesItsConfigurations(t *testing.T) {
	for _, name := range []string{"demo.yaml", "upstream.yaml"} {
		servers.ValidateEnvoy(t, filepath.Join(folder(t), name))
	}
}

// Envoy takes the name of a cluster that does not exist, and then lets everything through.
func TestDemoNamesItsOwnClusters(t *testing.T) {
	text := read(t, filepath.Join(folder(t), "demo.yaml"))
	all := regexp.MustCompile(`envoy_grpc: \{cluster_name: ([a-z]+)`).FindAllStringSubmatch(text, -1)
	if len(all) != 3 {
		t.Fatalf("demo.yaml names %d clusters for ext_authz, the rate limit service and traces", len(all))
	}
	for _, named := range all {
		if !strings.Contains(text, "\n  - name: "+named[1]+"\n") {
			t.Errorf("demo.yaml has no cluster %q", named[1])
		}
	}
}

func TestPrometheusTakesItsConfiguration(t *testing.T) {
	out, err := exec.Command("promtool", "check", "config",
		filepath.Join(folder(t), "prometheus.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("promtool (of make tools) refuses prometheus.yaml: %v\n%s", err, out)
	}
}

func TestCollectorsPipelinesAreWhole(t *testing.T) {
	var config struct {
		Receivers, Processors, Exporters map[string]any
		Service                          struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	decode(t, filepath.Join(folder(t), "otel-collector.yaml"), &config)
	if len(config.Service.Pipelines) == 0 {
		t.Fatal("the collector has no pipeline")
	}
	for name, p := range config.Service.Pipelines {
		whole(t, name+" receivers", p.Receivers, config.Receivers)
		whole(t, name+" processors", p.Processors, config.Processors)
		whole(t, name+" exporters", p.Exporters, config.Exporters)
	}
}

// whole fails unless the pipeline names something, and nothing that is not there.
func whole(t *testing.T, what string, named []string, there map[string]any) {
	t.Helper()
	if len(named) == 0 {
		t.Errorf("%s: none", what)
	}
	for _, name := range named {
		if _, ok := there[name]; !ok {
			t.Errorf("%s: %s is not configured", what, name)
		}
	}
}

// The dashboard is where Grafana looks for it, and of a form that it loads without asking questions.
func TestDashboardIsProvisioned(t *testing.T) {
	s := compose(t)["grafana"]
	var config struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, filepath.Join(folder(t), "grafana", "dashboards.yaml"), &config)
	home := s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(config.Providers) != 1 || config.Providers[0].Options.Path != path.Dir(home) {
		t.Errorf("dashboards are provisioned from %v, and the first page is %s", config.Providers, home)
	}
	at := slices.IndexFunc(s.Volumes, func(mount string) bool {
		return strings.HasSuffix(mount, ":"+path.Dir(home)+":ro")
	})
	if at < 0 {
		t.Fatalf("nothing is mounted at %s", home)
	}
	var board struct {
		UID, Title string
		Panels     []any
		Inputs     []any `json:"__inputs"`
	}
	source, _, _ := strings.Cut(s.Volumes[at], ":")
	file := filepath.Join(folder(t), source, path.Base(home))
	err := json.Unmarshal([]byte(read(t, file)), &board)
	if err != nil || board.UID == "" || board.Title == "" || len(board.Panels) == 0 || board.Inputs != nil {
		t.Errorf("%s: uid %q, title %q, %d panels, inputs %v (%v)", file, board.UID, board.Title, len(board.Panels),
			board.Inputs, err)
	}
}

func TestDatasourcesDiffer(t *testing.T) {
	var config struct {
		Datasources []struct {
			Name, UID, Type string
			IsDefault       bool `yaml:"isDefault"`
		}
	}
	decode(t, filepath.Join(folder(t), "grafana", "datasources.yaml"), &config)
	seen, defaults := map[string]bool{}, 0
	for _, d := range config.Datasources {
		if seen[d.UID] || d.UID == "" || d.Name == "" || d.Type == "" {
			t.Errorf("datasource %+v is not whole, or there twice", d)
		}
		seen[d.UID] = true
		if d.IsDefault {
			defaults++
		}
	}
	if len(seen) < 2 || defaults != 1 {
		t.Errorf("%d datasources, %d of them the default, want Prometheus and Jaeger, and one", len(seen), defaults)
	}
}
