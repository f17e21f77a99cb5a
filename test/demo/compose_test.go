package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/sidecar"
	"github.com/spillway-mesh/spillway/test/servers"
)

// nothing is an environment in which no variable is set.
func nothing(string) (string, bool) { return "", false }

// ours is the demo's compose file, as somebody reads it who has set nothing.
func ours(t *testing.T) *Compose {
	t.Helper()
	c, err := ReadCompose(filepath.Join(servers.Root(t), "examples", "envoy", "docker-compose.yaml"), nothing)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mounts(t *testing.T, c *Compose, s *Service) []Mount {
	t.Helper()
	all, err := c.Mounts(s)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decode reads a YAML file into anything.
func decode(t *testing.T, file string, into any) {
	t.Helper()
	err := yaml.Unmarshal([]byte(read(t, file)), into)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestTheCast(t *testing.T) {
	var names []string
	for _, s := range ours(t).Services {
		names = append(names, s.Name)
		if s.Build == nil && !regexp.MustCompile(`:v?\d+\.\d+[\w.-]*$`).MatchString(s.Image) {
			t.Errorf("service %s: image %s has no version: what was tested today must be what runs tomorrow", s.Name, s.Image)
		}
	}
	want := []string{"redis", "upstream", "sidecar-1", "sidecar-2", "envoy", "prometheus", "grafana", "otel-collector", "jaeger"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
}

// A container engine makes a folder of a source that does not exist, and the program finds that in place of its file.
func TestMountsExistAndAreUsed(t *testing.T) {
	c := ours(t)
	byImage := map[string]string{"grafana/grafana": "/etc/grafana/provisioning/"} // folders that an image reads unasked
	for i := range c.Services {
		s := &c.Services[i]
		for _, m := range mounts(t, c, s) {
			_, err := os.Stat(m.Source)
			if err != nil {
				t.Errorf("service %s mounts what does not exist: %v", s.Name, err)
			}
			asked := strings.Join(s.Command, " ") + " " + strings.Join(slices.Collect(maps.Values(s.Environment)), " ")
			image, _, _ := strings.Cut(s.Image, ":")
			if folder := byImage[image]; !strings.Contains(asked, m.Target) && (folder == "" || !strings.HasPrefix(m.Target, folder)) {
				t.Errorf("service %s: nothing reads %s", s.Name, m.Target)
			}
		}
	}
}

// listens is the ports on which a service's program really listens.
func listens(t *testing.T, c *Compose, s *Service) []int {
	t.Helper()
	known := map[string][]int{
		"redis": {6379}, "prom/prometheus": {9090}, "grafana/grafana": {3000}, "jaegertracing/jaeger": {16686, 4317, 4318},
	}
	image, _, _ := strings.Cut(s.Image, ":")
	switch {
	case s.Build != nil:
		cfg, err := sidecar.FromEnvironment(environ(s), "sidecar")
		if err != nil {
			t.Fatalf("service %s: %v", s.Name, err)
		}
		return []int{int(cfg.Listen.Port), int(cfg.Listen.GRPCPort), int(cfg.Listen.DebugPort)}
	case image == "envoyproxy/envoy":
		return portsIn(t, c, s, `\{address: 0\.0\.0\.0, port_value: (\d+)\}`)
	case image == "otel/opentelemetry-collector":
		return portsIn(t, c, s, `endpoint: "0\.0\.0\.0:(\d+)"`)
	default:
		return known[image]
	}
}

// portsIn finds the ports in the files that a service mounts.
func portsIn(t *testing.T, c *Compose, s *Service, expression string) []int {
	t.Helper()
	var ports []int
	for _, m := range mounts(t, c, s) {
		for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(read(t, m.Source), -1) {
			var port int
			_, err := fmt.Sscan(match[1], &port)
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, port)
		}
	}
	return ports
}

func environ(s *Service) []string {
	var all []string
	for name, value := range s.Environment {
		all = append(all, name+"="+value)
	}
	return all
}

func TestPortsAreThoseTheProgramsListenOn(t *testing.T) {
	c := ours(t)
	outside := map[int]string{}
	for i := range c.Services {
		s := &c.Services[i]
		open, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		real := listens(t, c, s)
		for _, port := range open {
			if !slices.Contains(real, port) {
				t.Errorf("service %s opens port %d, and its program listens on %v", s.Name, port, real)
			}
		}
		published, err := s.Published()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range published {
			if p.Address != loopback {
				t.Errorf("service %s is published on %s: nothing here has a password", s.Name, p.Address)
			}
			if other := outside[p.Host]; other != "" {
				t.Errorf("services %s and %s are both published on port %d", s.Name, other, p.Host)
			}
			outside[p.Host] = s.Name
		}
	}
}

// Whatever one service calls another by must be that service's name and an open port of it.
func TestServicesFindEachOther(t *testing.T) {
	c := ours(t)
	for i := range c.Services {
		s := &c.Services[i]
		for name, value := range s.Environment {
			for _, match := range hostPort.FindAllString(value, -1) {
				reachable(t, c, "service "+s.Name+": "+name, match)
			}
		}
		for _, m := range mounts(t, c, s) {
			if filepath.Ext(m.Source) != ".yaml" {
				continue
			}
			for _, found := range references(read(t, m.Source)) {
				reachable(t, c, m.Source, found)
			}
		}
	}
}

// references are the name:port pairs of a configuration of Envoy, Prometheus, Grafana or the collector.
func references(text string) []string {
	var all []string
	for _, match := range address.FindAllStringSubmatch(text, -1) {
		if match[1] != "0.0.0.0" {
			all = append(all, match[1]+":"+match[2])
		}
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if regexp.MustCompile(`targets: \[|url: http://|endpoint: [a-z]`).MatchString(line) {
			all = append(all, hostPort.FindAllString(line, -1)...)
		}
	}
	return all
}

func reachable(t *testing.T, c *Compose, who, addr string) {
	t.Helper()
	name, port, _ := strings.Cut(addr, ":")
	s := c.Service(name)
	if s == nil {
		t.Errorf("%s names %s, and there is no such service", who, addr)
		return
	}
	open, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(open, func(p int) bool { return fmt.Sprint(p) == port }) {
		t.Errorf("%s names %s, and that service opens %v", who, addr, open)
	}
}

// Each configuration that calls others has as many references as it seems to: the test above is no empty one.
func TestReferencesAreSeen(t *testing.T) {
	for file, want := range map[string]int{
		"demo.yaml": 4, "prometheus.yaml": 3, "grafana/datasources.yaml": 2, "otel-collector.yaml": 1, "upstream.yaml": 0,
	} {
		got := references(read(t, filepath.Join(ours(t).Folder, file)))
		if len(got) != want {
			t.Errorf("%s names %v, want %d services", file, got, want)
		}
	}
}

// otel are the variables of OpenTelemetry's specification that the demo may set: its SDK reads them, or the sidecar does.
var otel = []string{
	"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
	"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_INSECURE", "OTEL_PROPAGATORS",
}

// grafana are the settings of grafana.ini that the demo may set: GF_SECTION_KEY.
var grafana = []string{
	"GF_AUTH_ANONYMOUS_ENABLED", "GF_AUTH_ANONYMOUS_ORG_ROLE", "GF_AUTH_DISABLE_LOGIN_FORM", "GF_ANALYTICS_REPORTING_ENABLED",
	"GF_ANALYTICS_CHECK_FOR_UPDATES", "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH",
}

func TestEnvironmentNamesExist(t *testing.T) {
	c := ours(t)
	for i := range c.Services {
		s := &c.Services[i]
		known := grafana
		if s.Build != nil {
			known = append(settings(reflect.TypeFor[sidecar.Config](), ""), otel...)
		}
		for name := range s.Environment {
			if !slices.Contains(known, name) {
				t.Errorf("service %s sets %s, which nothing reads", s.Name, name)
			}
		}
	}
}

// settings are the variables of the sidecar's Config, each with the prefix of the struct it stands in.
func settings(config reflect.Type, prefix string) []string {
	var names []string
	for i := range config.NumField() {
		field := config.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("env"), ",")
		if name != "" && name != "-" {
			names = append(names, prefix+name)
		}
		if field.Type.Kind() == reflect.Struct {
			names = append(names, settings(field.Type, prefix+field.Tag.Get("envPrefix"))...)
		}
	}
	return names
}

func TestSidecarsTakeTheirEnvironment(t *testing.T) {
	c := ours(t)
	for _, name := range []string{"sidecar-1", "sidecar-2"} {
		cfg, err := sidecar.FromEnvironment(environ(c.Service(name)), "sidecar")
		if err != nil {
			t.Fatalf("service %s: %v", name, err)
		}
		if len(cfg.Warnings) > 0 {
			t.Errorf("service %s: %v", name, cfg.Warnings)
		}
	}
}

func TestEnvoyTakesItsConfigurations(t *testing.T) {
	for _, name := range []string{"demo.yaml", "upstream.yaml"} {
		servers.ValidateEnvoy(t, filepath.Join(ours(t).Folder, name))
	}
}

// Envoy takes the name of a cluster that does not exist, and then lets everything through.
func TestDemoNamesItsOwnClusters(t *testing.T) {
	text := read(t, filepath.Join(ours(t).Folder, "demo.yaml"))
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
	out, err := exec.Command("promtool", "check", "config", filepath.Join(ours(t).Folder, "prometheus.yaml")).CombinedOutput()
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
	decode(t, filepath.Join(ours(t).Folder, "otel-collector.yaml"), &config)
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
	c := ours(t)
	s := c.Service("grafana")
	var told struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decode(t, filepath.Join(c.Folder, "grafana", "dashboards.yaml"), &told)
	home := s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(told.Providers) != 1 || told.Providers[0].Options.Path != path.Dir(home) {
		t.Errorf("dashboards are provisioned from %v, and the first page is %s", told.Providers, home)
	}
	at := slices.IndexFunc(mounts(t, c, s), func(m Mount) bool { return m.Target == home })
	if at < 0 {
		t.Fatalf("nothing is mounted at %s", home)
	}
	var board struct {
		UID, Title string
		Panels     []any
		Inputs     []any `json:"__inputs"`
	}
	file := mounts(t, c, s)[at].Source
	err := json.Unmarshal([]byte(read(t, file)), &board)
	if err != nil || board.UID == "" || board.Title == "" || len(board.Panels) == 0 || board.Inputs != nil {
		t.Errorf("%s: uid %q, title %q, %d panels, inputs %v (%v)", file, board.UID, board.Title, len(board.Panels), board.Inputs, err)
	}
}

func TestDatasourcesDiffer(t *testing.T) {
	var told struct {
		Datasources []struct {
			Name, UID, Type string
			IsDefault       bool `yaml:"isDefault"`
		}
	}
	decode(t, filepath.Join(ours(t).Folder, "grafana", "datasources.yaml"), &told)
	seen, defaults := map[string]bool{}, 0
	for _, d := range told.Datasources {
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
