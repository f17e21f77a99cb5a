// Package schema holds the demo's compose file to the compose specification. It is a module of its own, so that the
// sidecar's module does not know the specification's.
package schema

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

const file = "../../../examples/envoy/docker-compose.yaml"

// load reads a compose file as the compose command does: against the schema, then that services, networks and volumes
// which are named exist.
func load(text string) (*types.Project, error) {
	folder, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	return loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir: folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "docker-compose.yaml"),
			Content: []byte(text)}},
		Environment: types.Mapping{},
	})
}

func ours(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestComposeFileIsValid(t *testing.T) {
	project, err := load(ours(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 9 {
		t.Errorf("%d services, want 9", len(project.Services))
	}
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind || !v.ReadOnly {
				t.Errorf("service %s: %s is not mounted read-only", name, v.Target)
			}
		}
		if s.Build != nil {
			_, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile))
			if err != nil {
				t.Errorf("service %s is built from nothing: %v", name, err)
			}
		}
	}
}

// The checker finds what it is there for.
func TestMistakesAreFound(t *testing.T) {
	text := ours(t)
	for name, change := range map[string][2]string{
		"an unknown key":         {"    expose: [\"6379\"]", "    exposes: [\"6379\"]"},
		"a wrong type":           {"read_only: true", "read_only: [yes]"},
		"an unknown service":     {"    depends_on: [jaeger]", "    depends_on: [zipkin]"},
		"an unknown condition":   {"upstream: {condition: service_started}", "upstream: {condition: service_hopeful}"},
		"a port that is no port": {"127.0.0.1:${JAEGER_PORT:-16686}:16686", "127.0.0.1:jaeger:16686"},
	} {
		if strings.Count(text, change[0]) != 1 {
			t.Fatalf("%s: the file has %q %d times, want once", name, change[0], strings.Count(text, change[0]))
		}
		_, err := load(strings.Replace(text, change[0], change[1], 1))
		if err == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
