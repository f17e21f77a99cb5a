package manifests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// edits are what a reader does to a copy: two names, and limits of which nothing comes back while a test runs.
var edits = strings.NewReplacer("shop", "bakery", "checkout", "orders", "60/1m", "60/1h", "20/1m", "20/1h")

// world is a file at work: the Envoy that Istio would make of it, and the container that Kubernetes would start.
type world struct {
	envoy   *servers.Envoy
	sidecar *servers.Sidecar
	rules   *mounted
}

// start starts what a file describes, after the reader's edits. What is in front goes before the filters of the file.
func start(t *testing.T, name string, front ...any) *world {
	t.Helper()
	all := documents(t, edits.Replace(example(t, name)))
	p := assemble(t, all, providersOf(t, edits.Replace(example(t, meshValues))))
	w := &world{rules: mountRules(t, all)}
	pod := podOf(t, all)
	env := pod.environment(t, w.rules.dir)
	w.sidecar = servers.StartSidecar(t, env...)
	endpoint(t, p.spillway(t))["address"] = w.address(t, env)
	p.filters = append(front, p.filters...)
	p.wait(t)
	w.envoy = servers.StartEnvoy(t, p.bootstrap(t, servers.StartUpstream(t).Addr))
	return w
}

// environment is what the container gets, but for what is of the machine: addresses, folders and the Secret, which is
// not there.
func (p pod) environment(t *testing.T, rules string) []string {
	t.Helper()
	var env []string
	for _, e := range p.spillway.Env {
		switch e.Name {
		case "RULES":
			e.Value = rules
		case "GRPC_UDS":
			e.Value = filepath.Join(shortDir(t), "s.sock")
		case "GRPC_HOST":
			e.Value = "127.0.0.1"
		case "USE_PROMETHEUS":
			env = append(env, "PROMETHEUS_ADDR=127.0.0.1:0")
		case "PORT", "GRPC_PORT", "DEBUG_PORT", "REDIS_URL":
			continue
		}
		env = append(env, e.Name+"="+e.Value)
	}
	return env
}

// shortDir is a folder whose path leaves room for a socket, which the test's own may not.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "uds"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// address is where Envoy finds the sidecar.
func (w *world) address(t *testing.T, env []string) fields {
	t.Helper()
	for _, e := range env {
		if socket, found := strings.CutPrefix(e, "GRPC_UDS="); found {
			return fields{"pipe": fields{"path": socket}}
		}
	}
	host, port, err := net.SplitHostPort(w.sidecar.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	number := must.Get(strconv.Atoi(port))(t)
	return fields{"socket_address": fields{"address": host, "port_value": number}}
}

// wait makes the filters wait longer for an answer: the examples' own times would open limits on a busy machine.
func (p *proxy) wait(t *testing.T) {
	t.Helper()
	const long = "5s"
	for _, filter := range p.filters {
		config := filter.(fields)["typed_config"].(fields)
		switch filter.(fields)["name"] {
		case "envoy.filters.http.ratelimit":
			config["timeout"] = long
		case "envoy.filters.http.ext_authz":
			config["grpc_service"].(fields)["timeout"] = long
		}
	}
}

// mounted is a ConfigMap as Kubernetes mounts it: files that are links into a folder, which one rename replaces as a
// whole.
type mounted struct {
	dir     string
	version int
	files   map[string]string
}

func mountRules(t *testing.T, all []document) *mounted {
	t.Helper()
	m := &mounted{dir: t.TempDir()}
	for _, d := range all {
		if found, is := d.object.(*core.ConfigMap); is {
			m.files = found.Data
		}
	}
	m.publish(t)
	for name := range m.files {
		must.Do(t, os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
	}
	return m
}

// publish swaps in a new version of all files.
func (m *mounted) publish(t *testing.T) {
	t.Helper()
	old := fmt.Sprintf("..version_%d", m.version)
	m.version++
	fresh := fmt.Sprintf("..version_%d", m.version)
	err := os.Mkdir(filepath.Join(m.dir, fresh), 0o755)
	for name, text := range m.files {
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, fresh, name), []byte(text), 0o644)
		}
	}
	link := filepath.Join(m.dir, "..data_tmp")
	if err == nil {
		err = os.Symlink(fresh, link)
	}
	if err == nil {
		err = os.Rename(link, filepath.Join(m.dir, "..data"))
	}
	if err != nil {
		t.Fatalf("publish a version of the ConfigMap: %v", err)
	}
	os.RemoveAll(filepath.Join(m.dir, old))
}

// change replaces a text that must be in the rules.
func (m *mounted) change(t *testing.T, from, to string) {
	t.Helper()
	changed := false
	for name, text := range m.files {
		m.files[name] = strings.Replace(text, from, to, 1)
		changed = changed || m.files[name] != text
	}
	if !changed {
		t.Fatalf("the rules do not hold %q: %v", from, m.files)
	}
	m.publish(t)
}

// request is what a client sends.
type request struct {
	path, header, value string
}

func (w *world) get(t *testing.T, r request) *http.Response {
	t.Helper()
	got, err := w.try(r)
	if err != nil {
		t.Fatalf("GET %s through Envoy: %v", r.path, err)
	}
	return got
}

func (w *world) try(r request) (*http.Response, error) {
	q, err := http.NewRequest(http.MethodGet, "http://"+w.envoy.Addr+r.path, nil)
	if err != nil {
		return nil, err
	}
	if r.header != "" {
		q.Header.Set(r.header, r.value)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	_, err = io.Copy(io.Discard, got.Body)
	return got, err
}

// wants sends a request n times and fails unless each is answered with the status.
func (w *world) wants(t *testing.T, n, status int, r request) *http.Response {
	t.Helper()
	var last *http.Response
	for i := range n {
		last = w.get(t, r)
		if last.StatusCode != status {
			t.Fatalf("request %d of %v got %d, want %d (headers %v)", i+1, r, last.StatusCode, status, last.Header)
		}
	}
	return last
}

// wantsNoErrors fails when Envoy could not ask: it lets such requests through, and a test may pass for that.
func (w *world) wantsNoErrors(t *testing.T) {
	t.Helper()
	for _, name := range []string{"cluster.app.ratelimit.error", "http.inbound.ext_authz.error",
		"http.inbound.ext_authz.invalid"} {
		if n := w.envoy.Stat(t, name); n != 0 {
			t.Errorf("Envoy's %s is %d", name, n)
		}
	}
}

// wantsQuietSidecar fails when the sidecar found anything wrong with its settings or rules.
func (w *world) wantsQuietSidecar(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(w.sidecar.Output()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the sidecar says %s", line)
		}
	}
	got := must.Get(http.Get("http://" + w.sidecar.Debug + "/metrics"))(t)
	defer got.Body.Close()
	text := must.Get(io.ReadAll(got.Body))(t)
	for _, line := range []string{"ratelimit_service_config_load_success 1\n",
		"ratelimit_service_config_load_error 0\n"} {
		if !strings.Contains(string(text), "\n"+line) {
			t.Errorf("the sidecar's metrics do not say %q", line)
		}
	}
}

// inside waits until the current minute has enough time left for a case.
func inside(t *testing.T) {
	t.Helper()
	servers.Inside(t, time.Minute, 9*time.Second)
}

// served is how each file behaves: so many of one request pass, others still do, and more after a change of the rules.
var served = map[string]struct {
	passes   int
	of       request
	others   []request
	from, to string
}{
	"rls-socket.yaml":    {5, request{path: "/login"}, elsewhere, "count: 5,", "count: 500,"},
	"rls-loopback.yaml":  {5, request{path: "/login"}, elsewhere, "requests_per_unit: 5 ", "requests_per_unit: 500 "},
	"rls-namespace.yaml": {5, request{path: "/login"}, elsewhere, "count: 5,", "count: 500,"},
	"ext-authz.yaml":     {20, byKey("/"), unasked, "20/1h", "2000/1h"},
	"ambient.yaml":       {20, byKey("/"), unasked, "20/1h", "2000/1h"},
}

var (
	// Another path, and another client behind the same gateway.
	elsewhere = []request{{path: "/"}, {path: "/login", header: "x-forwarded-for", value: "203.0.113.9"}}
	// A key of no client, and what the policy leaves out.
	unasked = []request{{path: "/"}, byKey("/healthz")}
)

func byKey(path string) request {
	return request{path, "x-api-key", "spillway-demo-key"}
}

func TestFilesLimitRequests(t *testing.T) {
	for _, name := range sidecarFiles(t) {
		t.Run(name, func(t *testing.T) {
			c, found := served[name]
			if !found {
				t.Fatal("this test does not know what the file promises")
			}
			w := start(t, name)
			w.wantsQuietSidecar(t)
			inside(t)
			w.wants(t, c.passes, http.StatusOK, c.of)
			refused := w.wants(t, 1, http.StatusTooManyRequests, c.of)
			if refused.Header.Get("retry-after") == "" || refused.Header.Get("x-ratelimit-remaining") != "0" {
				t.Errorf("the refusal does not say when to come again: %v", refused.Header)
			}
			for _, other := range c.others {
				w.wants(t, 1, http.StatusOK, other)
			}

			w.rules.change(t, c.from, c.to)
			servers.Await(t, "the changed ConfigMap", func() error {
				got, err := w.try(c.of)
				if err == nil && got.StatusCode != http.StatusOK {
					err = fmt.Errorf("still %s", got.Status)
				}
				return err
			})
			w.wantsNoErrors(t)

			w.sidecar.End(t)
			w.wants(t, 3, http.StatusOK, c.of)
		})
	}
}
