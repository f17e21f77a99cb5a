package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// setup is what a world differs in from the usual one.
type setup struct {
	env     []string          // of the sidecar, on top of the usual
	rules   map[string]string // files beside (or in place of) those of examples/rules
	timeout string            // of Envoy's filter
	socket  string            // Envoy talks to the sidecar over this Unix socket, in place of TCP
}

// world is a client's view of the whole: Envoy in front of an application, the sidecar beside it, Redis behind.
type world struct {
	redis   *servers.Redis
	app     *servers.Upstream
	sidecar *servers.Sidecar
	envoy   *servers.Envoy
	rules   string // folder of the rule files
	log     string // Envoy's access log
	client  *http.Client
}

// Times that a busy machine with two cores needs. They are generous because a test that is not about time must not fail
// on it: the example's own 25 ms, and the sidecar's own 250 ms for Redis, would open the limits under load.
const (
	filterTimeout = "20s"
	storeSilence  = "STORE_SILENCE=1s"
	storePatience = "STORE_PATIENCE=2s"
)

func start(t *testing.T, s setup) *world {
	t.Helper()
	w := &world{redis: servers.StartRedis(t), app: servers.StartUpstream(t), rules: t.TempDir(),
		log: filepath.Join(t.TempDir(), "access.log")}
	w.writeRules(t, s.rules)
	env := append([]string{"RULES=" + w.rules, "REDIS_URL=" + w.redis.Addr, storeSilence, storePatience}, s.env...)
	w.sidecar = servers.StartSidecar(t, env...)
	if s.timeout == "" {
		s.timeout = filterTimeout
	}
	address := socketAddress(w.sidecar.GRPC)
	if s.socket != "" {
		address = fmt.Sprintf("{pipe: {path: %s}}", s.socket)
	}
	w.envoy = servers.StartEnvoy(t, exampleConfig(t, w.app.Addr, address, s.timeout, w.log))
	w.client = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// writeRules fills the folder of rules: those of examples/rules, and those of the test in front of them.
func (w *world) writeRules(t *testing.T, own map[string]string) {
	t.Helper()
	files := map[string]string{}
	examples, err := filepath.Glob(filepath.Join(servers.Root(t), "examples", "rules", "*.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("no rules in examples/rules: %v", err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatalf("read the example rules: %v", err)
		}
		files[filepath.Base(name)] = string(text)
	}
	maps.Copy(files, own)
	for name, text := range files {
		w.writeRule(t, name, text)
	}
}

// writeRule replaces one file in one step, as an editor or a deployment does.
func (w *world) writeRule(t *testing.T, name, text string) {
	t.Helper()
	fresh := filepath.Join(w.rules, "."+name+".new")
	err := os.WriteFile(fresh, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(fresh, filepath.Join(w.rules, name))
	}
	if err != nil {
		t.Fatalf("write rule file %s: %v", name, err)
	}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// get sends a request through Envoy. Headers come in pairs of name and value.
func (w *world) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	a, err := w.try(path, headers...)
	if err != nil {
		t.Fatalf("GET %s through Envoy: %v", path, err)
	}
	return a
}

func (w *world) try(path string, headers ...string) (answer, error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+w.envoy.Addr+path, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return do(w.client, r)
}

func do(client *http.Client, r *http.Request) (answer, error) {
	got, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return answer{}, err
	}
	if len(got.Trailer) > 0 {
		maps.Copy(got.Header, got.Trailer)
	}
	return answer{got.StatusCode, got.Header, string(body)}, nil
}

// wants sends n requests and fails unless each is answered with the status.
func (w *world) wants(t testing.TB, n, status int, path string, headers ...string) answer {
	t.Helper()
	var last answer
	for i := range n {
		last = w.get(t, path, headers...)
		if last.status != status {
			t.Fatalf("request %d to %s was answered with %d, want %d (headers %v, body %q)", i+1, path, last.status,
				status, last.header, last.body)
		}
	}
	return last
}

// remaining is what is left by the headers to the client.
func (a answer) remaining(t testing.TB, want string) {
	t.Helper()
	if got := a.header.Get("x-ratelimit-remaining"); got != want {
		t.Errorf("x-ratelimit-remaining is %q, want %q (headers %v)", got, want, a.header)
	}
}

// unlimited fails when the answer reports a limit.
func (a answer) unlimited(t testing.TB) {
	t.Helper()
	for name := range a.header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-ratelimit") && lower != "x-ratelimit-decision" {
			t.Errorf("header %s: %q on an answer that no limit applies to", name, a.header.Get(name))
		}
	}
}

// noErrors runs a case and fails when Envoy could not ask the sidecar meanwhile: it lets such requests through.
func (w *world) noErrors(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		before := w.envoy.Stat(t, "cluster.app.ratelimit.error")
		defer func() {
			if after := w.envoy.Stat(t, "cluster.app.ratelimit.error"); after != before {
				t.Errorf("%d calls to the rate limit service failed meanwhile: what passed may have passed by "+
					"failing open", after-before)
			}
		}()
		run(t)
	})
}

// inside waits until the current window of that length has enough time left for a case.
func inside(t testing.TB, window time.Duration) {
	t.Helper()
	servers.Inside(t, window, 9*time.Second)
}

// logged is the line that Envoy's access log has about a path, which it writes some time after the response.
func (w *world) logged(t testing.TB, path string) string {
	t.Helper()
	var line string
	servers.Await(t, "the line of "+path+" in Envoy's access log", func() error {
		w.envoy.FlushLogs(t)
		text, err := os.ReadFile(w.log)
		if err != nil {
			return err
		}
		_, after, found := strings.Cut(string(text), " "+path+" ")
		line, _, _ = strings.Cut(after, "\n")
		if !found {
			return fmt.Errorf("the log is\n%s", text)
		}
		return nil
	})
	return line
}
