package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// authzSetup is what a world with ext_authz differs in from the usual one.
type authzSetup struct {
	memory bool              // the sidecar runs without Redis
	env    []string          // of the sidecar, on top of the usual
	rules  map[string]string // files beside (or in place of) those of examples/rules
	swaps  [][2]string       // of examples/envoy/ext_authz.yaml: a text, and what replaces it
}

// authzTimeout is the filter's. The example's own would end calls on a busy machine, and cut the throttle's waits.
const authzTimeout = "20s"

func authzFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "examples", "envoy", "ext_authz.yaml")
}

// startAuthz starts a world whose Envoy runs examples/envoy/ext_authz.yaml.
func startAuthz(t *testing.T, s authzSetup) *world {
	t.Helper()
	w := &world{app: servers.StartUpstream(t), rules: t.TempDir(), log: filepath.Join(t.TempDir(), "access.log")}
	w.writeRules(t, s.rules)
	env := append([]string{"RULES=" + w.rules, storeSilence, storePatience}, s.env...)
	if !s.memory {
		w.redis = servers.StartRedis(t)
		env = append(env, "REDIS_URL="+w.redis.Addr)
	}
	w.sidecar = servers.StartSidecar(t, env...)
	changes := addresses(w.app.Addr, socketAddress(w.sidecar.GRPC), w.log)
	changes = append(changes, [2]string{" timeout: 0.025s", " timeout: " + filterTimeout},
		[2]string{" timeout: 0.75s", " timeout: " + authzTimeout})
	w.envoy = servers.StartEnvoy(t, rewritten(t, authzFile(t), append(changes, s.swaps...)))
	w.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// onEachStore runs a test in two worlds, with counts in memory and in Redis.
func onEachStore(t *testing.T, s authzSetup, run func(t *testing.T, w *world)) {
	t.Helper()
	for _, memory := range []bool{true, false} {
		s.memory = memory
		name := "redis"
		if memory {
			name = "memory"
		}
		t.Run(name, func(t *testing.T) { run(t, startAuthz(t, s)) })
	}
}

// authzErrors are Envoy's counters of calls that failed, and of answers that it could not use.
var authzErrors = []string{"http.ingress.ext_authz.error", "http.ingress.ext_authz.invalid",
	"cluster.app.ratelimit.error"}

// clean runs a case and fails when Envoy could not ask the sidecar, or not use its answer, meanwhile: the case may have
// passed for that reason.
func (w *world) clean(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		before := make([]int64, len(authzErrors))
		for i, counter := range authzErrors {
			before[i] = w.envoy.Stat(t, counter)
		}
		defer func() {
			for i, counter := range authzErrors {
				if after := w.envoy.Stat(t, counter); after != before[i] {
					t.Errorf("Envoy's %s went from %d to %d meanwhile", counter, before[i], after)
				}
			}
		}()
		run(t)
	})
}

// has fails unless a header is there once, with that value.
func (a answer) has(t testing.TB, header, want string) {
	t.Helper()
	if got := a.header.Values(header); len(got) != 1 || got[0] != want {
		t.Errorf("%s is %q, want once %q (headers %v)", header, got, want, a.header)
	}
}

// mentions fails unless the body holds a text.
func (a answer) mentions(t testing.TB, text string) {
	t.Helper()
	if !strings.Contains(a.body, text) {
		t.Errorf("the body says nothing of %q: %q", text, a.body)
	}
}

// send sends a request with another method through Envoy. Headers come in pairs of name and value.
func (w *world) send(t testing.TB, method, path string, headers ...string) answer {
	t.Helper()
	r := must.Get(http.NewRequest(method, "http://"+w.envoy.Addr+path, nil))(t)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	got, err := do(w.client, r)
	if err != nil {
		t.Fatalf("%s %s through Envoy: %v", method, path, err)
	}
	return got
}

func TestAuthzExampleIsValid(t *testing.T) {
	servers.ValidateEnvoy(t, authzFile(t))
}

// Envoy accepts services at a cluster that does not exist.
func TestAuthzExampleNamesItsOwnCluster(t *testing.T) {
	text := must.Get(os.ReadFile(authzFile(t)))(t)
	all := regexp.MustCompile(`envoy_grpc: \{cluster_name: ([a-z]+)`).FindAllStringSubmatch(string(text), -1)
	if len(all) != 2 {
		t.Fatalf("the example names %d clusters for its two services", len(all))
	}
	for _, named := range all {
		if !strings.Contains(string(text), "\n  - name: "+named[1]+"\n") {
			t.Errorf("the example has no cluster %q", named[1])
		}
	}
}

// demoKey is the API key of user alice in examples/rules/authz.yaml, and ciKey that of ci-bot, with limits of its own.
const (
	demoKey = "spillway-demo-key"
	ciKey   = "spillway-demo-key-ci"
)
