package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// mounted is a pod's /etc/spillway on this machine, with files for what its Secrets and ConfigMaps would hold.
type mounted string

// mount writes the files that the environment of a container names, and the rules.
func mount(t *testing.T, r rendering, c core.Container) mounted {
	t.Helper()
	m := mounted(t.TempDir())
	cert, key := servers.Certificate(t)
	for _, e := range c.Env {
		switch {
		case e.ValueFrom != nil: // not a file
		case strings.HasSuffix(e.Name, "_KEY"):
			m.write(t, e.Value, content(t, key))
		case strings.HasSuffix(e.Name, "CERT"):
			m.write(t, e.Value, content(t, cert))
		case e.Name == "ADMIN_TOKEN_FILE":
			m.write(t, e.Value, "operate alice 0123456789abcdef0123456789abcdef\n")
		case e.Name == "CONTROL_TOKEN_FILE":
			digest := sha256.Sum256([]byte(controlToken))
			m.write(t, e.Value, "admin ann "+hex.EncodeToString(digest[:])+"\n")
		case strings.HasSuffix(e.Name, "_FILE"):
			m.write(t, e.Value, "0123456789abcdef0123456789abcdef")
		}
	}
	files := map[string]string{
		"existing.yaml": "domain: existing\nrules: [{ name: all, scope: global, limit: 1/1s }]\n"}
	if own := configMap(r, "-rules"); own != nil {
		files = own.Data
	}
	for name, text := range files {
		m.write(t, filepath.Join(root, "rules", name), text)
	}
	return m
}

const (
	root         = "/etc/spillway"
	controlToken = "a token of ann, who is an administrator"
)

// write writes a file at a path that the container would see.
func (m mounted) write(t *testing.T, name, text string) {
	t.Helper()
	if !strings.HasPrefix(name, root+"/") {
		t.Fatalf("%s is outside of the folders that are mounted", name)
	}
	name = m.path(name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// path is where a path of the container is on this machine.
func (m mounted) path(name string) string {
	if rest, found := strings.CutPrefix(name, root); found {
		return string(m) + rest
	}
	return name
}

func content(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

// environment is the container's, with this machine's paths. What comes from a Secret or the pod has a value.
func (m mounted) environment(c core.Container) []string {
	var env []string
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			e.Value = "redis://redis:6379"
			if e.ValueFrom.FieldRef != nil {
				e.Value = namespace
			}
		}
		env = append(env, e.Name+"="+m.path(e.Value))
	}
	return env
}

// TestEnvironmentsAreUnderstood: each variable is one that the sidecar reads, once, and all of them together are taken
// without a warning.
func TestEnvironmentsAreUnderstood(t *testing.T) {
	known := settings.Variables()
	eachRendering(t, func(t *testing.T, r rendering) {
		c := container(t, pod(t, r))
		var names []string
		for _, e := range c.Env {
			if !slices.Contains(known, e.Name) || slices.Contains(names, e.Name) {
				t.Errorf("the sidecar does not read %s, or it is there twice", e.Name)
			}
			names = append(names, e.Name)
			if folder := filepath.Dir(e.Value); strings.HasPrefix(e.Value, root) && e.Name != "RULES" &&
				!slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == folder }) {
				t.Errorf("%s is %s, where nothing is mounted", e.Name, e.Value)
			}
		}
		cfg, err := settings.FromEnvironment(mount(t, r, c).environment(c), "sidecar")
		if err != nil {
			t.Errorf("the sidecar would not start: %v", err)
		}
		if len(cfg.Warnings) > 0 {
			t.Errorf("the sidecar warns: %v", cfg.Warnings)
		}
	})
}

var domainOf = regexp.MustCompile(`(?m)^domain: (\S+)$`)

// TestRulesAreLoadedByTheSidecar starts a sidecar with each rendering's environment and rules, and asks for the rules
// that hold. Those that a control publishes are in TestAControlOfTheChartServes.
func TestRulesAreLoadedByTheSidecar(t *testing.T) {
	eachRendering(t, func(t *testing.T, r rendering) {
		if len(controlPods(t, r)) > 0 {
			return
		}
		c := container(t, pod(t, r))
		m := mount(t, r, c)
		load := rules.Read(rules.FilesConfig{}, m.path(root+"/rules"))
		if load.Rejected() || load.Text() != "" {
			t.Fatalf("the rules have problems:\n%s", load.Text())
		}
		s := servers.StartSidecar(t, machine(t, m.environment(c))...)
		answer := must.Get(http.Get("http://" + s.Debug + "/rlconfig"))(t)
		defer answer.Body.Close()
		page := must.Get(io.ReadAll(answer.Body))(t)
		files, err := filepath.Glob(m.path(root + "/rules/*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no rules are mounted: %v", err)
		}
		for _, file := range files {
			domain := domainOf.FindStringSubmatch(content(t, file))[1]
			if !strings.Contains(string(page), domain) {
				t.Errorf("the domain %s is not in force:\n%s", domain, page)
			}
		}
	})
}

// TestARenderingLimitsRequests: two pods of one rendering share the count of a real Redis.
func TestARenderingLimitsRequests(t *testing.T) {
	r := render(t, "--values", filepath.Join(chartDir(t), "ci", "01-namespace.yaml"))
	c := container(t, pod(t, r))
	redis := servers.StartRedis(t)
	var pods []*servers.Sidecar
	for range 2 {
		env := append(machine(t, mount(t, r, c).environment(c)), "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s",
			"STORE_PATIENCE=2s")
		pods = append(pods, servers.StartSidecar(t, env...))
	}
	const ask = `{"domain":"shop","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.7"},` +
		`{"key":"path","value":"/login"},{"key":"method","value":"GET"}]}]}`
	var statuses []int
	for i := range 6 {
		answer := must.Get(http.Post("http://"+pods[i%2].HTTP+"/json", "application/json", strings.NewReader(ask)))(t)
		answer.Body.Close()
		statuses = append(statuses, answer.StatusCode)
	}
	if !slices.Equal(statuses, []int{200, 200, 200, 200, 200, 429}) {
		t.Errorf("six requests for /login get %v, want five that pass and a refusal", statuses)
	}
}

// machine replaces what is of the pod's network by what is of this machine: loopback, free ports, no collector, no JSON
// in the log.
func machine(t *testing.T, env []string) []string {
	t.Helper()
	var own []string
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		switch name {
		case "PORT", "GRPC_PORT", "DEBUG_PORT", "LOG_FORMAT", "OTEL_EXPORTER_OTLP_ENDPOINT":
			continue
		case "GRPC_HOST":
			pair = "GRPC_HOST=127.0.0.1"
		case "PROMETHEUS_ADDR":
			pair = "PROMETHEUS_ADDR=127.0.0.1:0"
		case "GRPC_UDS":
			pair = "GRPC_UDS=@" + filepath.Base(t.TempDir()) + t.Name()
		case "REDIS_URL":
			pair = away(pair)
		}
		own = append(own, pair)
	}
	return own
}

var server = regexp.MustCompile(`[\w.-]+:\d+`)

// away replaces each address by one on loopback where nothing listens: the sidecar serves without its Redis.
func away(url string) string {
	port := 0
	return server.ReplaceAllStringFunc(url, func(string) string {
		port++
		return fmt.Sprintf("127.0.0.1:%d", port)
	})
}
