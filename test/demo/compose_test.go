package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/settings"
	"github.com/spillway-mesh/spillway/test/servers"
)

// nothing is an environment in which no variable is set.
func nothing(string) (string, bool) { return "", false }

// ours is the demo's compose file, as a user reads it who has set nothing.
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
		cfg, err := settings.FromEnvironment(environ(s), "sidecar")
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

// otel are the variables of OpenTelemetry's specification that its SDK reads by itself; the others are in the sidecar's Config.
var otel = []string{"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"}

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
			known = append(settings.Variables(), otel...)
		}
		for name := range s.Environment {
			if !slices.Contains(known, name) {
				t.Errorf("service %s sets %s, which nothing reads", s.Name, name)
			}
		}
	}
}

func TestSidecarsTakeTheirEnvironment(t *testing.T) {
	c := ours(t)
	for _, name := range []string{"sidecar-1", "sidecar-2"} {
		cfg, err := settings.FromEnvironment(environ(c.Service(name)), "sidecar")
		if err != nil {
			t.Fatalf("service %s: %v", name, err)
		}
		if len(cfg.Warnings) > 0 {
			t.Errorf("service %s: %v", name, cfg.Warnings)
		}
	}
}
