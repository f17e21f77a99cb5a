package demo

import (
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

// service is what these tests read of a service of docker-compose.yaml. test/demo/schema checks the whole file.
type service struct {
	Image         string
	Build         any
	Environment   map[string]string
	Volumes       []string
	Ports, Expose []string
}

func folder(t *testing.T) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "examples", "envoy")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

// compose reads docker-compose.yaml for a user who has set no variables.
func compose(t *testing.T) map[string]service {
	t.Helper()
	text := read(t, filepath.Join(folder(t), "docker-compose.yaml"))
	text = regexp.MustCompile(`\$\{[A-Z0-9_]+:-([^}]*)\}`).ReplaceAllString(text, "$1")
	var all struct{ Services map[string]service }
	err := yaml.Unmarshal([]byte(text), &all)
	if err != nil || len(all.Services) != 9 {
		t.Fatalf("docker-compose.yaml has %d services, want 9 (%v)", len(all.Services), err)
	}
	return all.Services
}

func TestImagesHaveVersions(t *testing.T) {
	for name, s := range compose(t) {
		if s.Build == nil && !regexp.MustCompile(`:v?\d+\.\d+[\w.-]*$`).MatchString(s.Image) {
			t.Errorf("service %s: image %s needs a version: what was tested today must be what runs tomorrow", name,
				s.Image)
		}
	}
}

// A container engine makes a folder of a source that does not exist, and the program finds that in place of its file.
func TestMountsExist(t *testing.T) {
	for name, s := range compose(t) {
		for _, mount := range s.Volumes {
			source, _, _ := strings.Cut(mount, ":")
			if _, err := os.Stat(filepath.Join(folder(t), source)); err != nil {
				t.Errorf("service %s: %v", name, err)
			}
		}
	}
}

// Nothing here has a password, so ports are published on loopback, each once.
func TestPortsArePublishedOnLoopback(t *testing.T) {
	taken := map[string]string{}
	for name, s := range compose(t) {
		for _, port := range s.Ports {
			parts := strings.Split(port, ":")
			if len(parts) != 3 || parts[0] != "127.0.0.1" {
				t.Fatalf("service %s: port %s must be 127.0.0.1:host:container", name, port)
			}
			if other := taken[parts[1]]; other != "" {
				t.Errorf("services %s and %s are both published on port %s", name, other, parts[1])
			}
			taken[parts[1]] = name
		}
	}
}

var (
	envoyAddress = regexp.MustCompile(`\{address: ([A-Za-z0-9.-]+), port_value: (\d+)\}`)
	hostPort     = regexp.MustCompile(`\b([a-z][a-z0-9-]*):(\d+)\b`)
	callsOthers  = regexp.MustCompile(`targets: \[|url: http://|endpoint: [a-z]`)
)

// TestServicesFindEachOther: a name:port in a configuration must be an open port of a service.
func TestServicesFindEachOther(t *testing.T) {
	all := compose(t)
	references := map[string][][]string{}
	for name, s := range all {
		for variable, value := range s.Environment {
			references[name+": "+variable] = hostPort.FindAllStringSubmatch(value, -1)
		}
	}
	for file, want := range map[string]int{
		"demo.yaml": 4, "prometheus.yaml": 3, "grafana/datasources.yaml": 2, "otel-collector.yaml": 1,
	} {
		for line := range strings.Lines(read(t, filepath.Join(folder(t), file))) {
			line, _, _ = strings.Cut(line, "#")
			for _, found := range envoyAddress.FindAllStringSubmatch(line, -1) {
				if found[1] != "0.0.0.0" {
					references[file] = append(references[file], found)
				}
			}
			if callsOthers.MatchString(line) {
				references[file] = append(references[file], hostPort.FindAllStringSubmatch(line, -1)...)
			}
		}
		if len(references[file]) != want {
			t.Errorf("%s names %v, want %d services", file, references[file], want)
		}
	}
	for where, found := range references {
		for _, to := range found {
			s, ok := all[to[1]]
			open := slices.ContainsFunc(s.Ports, func(port string) bool { return strings.HasSuffix(port, ":"+to[2]) })
			if !ok || !open && !slices.Contains(s.Expose, to[2]) {
				t.Errorf("%s names %s, which is not an open port of a service", where, to[0])
			}
		}
	}
}

func TestSidecarsTakeTheirEnvironment(t *testing.T) {
	all := compose(t)
	for _, name := range []string{"sidecar-1", "sidecar-2"} {
		known := append(settings.Variables(), "OTEL_SERVICE_NAME") // its SDK reads that one
		var env []string
		for variable, value := range all[name].Environment {
			env = append(env, variable+"="+value)
			if !slices.Contains(known, variable) {
				t.Errorf("service %s sets %s, which nothing reads", name, variable)
			}
		}
		cfg, err := settings.FromEnvironment(env, "sidecar")
		if err != nil || len(cfg.Warnings) > 0 {
			t.Errorf("service %s: %v %v", name, err, cfg.Warnings)
		}
		open := []string{"8080", "8081", "6070"}
		if !slices.Equal(all[name].Expose, open) || cfg.Listen.Port != 8080 || cfg.Listen.GRPCPort != 8081 ||
			cfg.Listen.DebugPort != 6070 {
			t.Errorf("service %s opens %v and listens on %+v, want %v", name, all[name].Expose, cfg.Listen, open)
		}
	}
}
