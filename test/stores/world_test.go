package stores

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// files are a tree, which one script decides, and rules of each algorithm, which others do. A limit is asked for by a
// key.
var files = map[string]string{
	"tree": "domain: tree\ndescriptors:\n  - { key: user, rate_limit: { unit: hour, requests_per_unit: 5 } }\n",
	"rules": `domain: rules
rules:
  - { name: token_bucket, scope: user, match: { entries: { kind: token_bucket } }, limit: { count: 5, per: 1h } }
  - { name: sliding_window, scope: user, match: { entries: { kind: sliding_window } }, limit: { count: 5, per: 1h,
      algorithm: sliding_window } }
  - { name: fixed_window, scope: user, match: { entries: { kind: fixed_window } }, limit: { count: 5, per: 1h,
      algorithm: fixed_window } }
  - { name: sliding_log, scope: user, match: { entries: { kind: sliding_log } }, limit: { count: 5, per: 1h,
      algorithm: sliding_log } }
  - { name: open, scope: user, match: { entries: { kind: open } }, limit: { count: 5, per: 1h }, on_failure: open }
`,
}

// start starts a server with these settings and a sidecar over it. Patience and silence are long, so that no busy
// machine decides.
func start(t *testing.T, settings ...string) (*servers.Redis, *servers.Sidecar) {
	t.Helper()
	rules := t.TempDir()
	for name, text := range files {
		err := os.WriteFile(filepath.Join(rules, name+".yaml"), []byte(text), 0o600)
		if err != nil {
			t.Fatalf("write the rules: %v", err)
		}
	}
	redis := servers.StartRedis(t, settings...)
	return redis, servers.StartSidecar(t, "RULES="+rules, "REDIS_URL="+redis.Addr, "STORE_PATIENCE=20s",
		"STORE_SILENCE=20s")
}

// answer is what the sidecar replies over /json about one descriptor.
type answer struct {
	Code     string `json:"overallCode"`
	Statuses []struct {
		Remaining int64 `json:"limitRemaining"`
	} `json:"statuses"`
	Metadata struct {
		Degraded string `json:"degraded"`
	} `json:"dynamicMetadata"`
}

// ask spends one token of a domain. Entries come in pairs of key and value.
func ask(t *testing.T, s *servers.Sidecar, domain string, entries ...string) (a answer) {
	t.Helper()
	var list []string
	for i := 0; i+1 < len(entries); i += 2 {
		list = append(list, fmt.Sprintf(`{"key": %q, "value": %q}`, entries[i], entries[i+1]))
	}
	body := fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [%s]}]}`, domain, strings.Join(list, ","))
	r, err := http.Post("http://"+s.HTTP+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("ask the sidecar: %v", err)
	}
	defer r.Body.Close()
	err = json.NewDecoder(r.Body).Decode(&a)
	if err != nil {
		t.Fatalf("read the sidecar's answer: %v", err)
	}
	return a
}

// awaitReady waits until /readyz has a text.
func awaitReady(t *testing.T, s *servers.Sidecar, want string) {
	t.Helper()
	servers.Await(t, "/readyz with "+want, func() error {
		r, err := http.Get("http://" + s.HTTP + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err == nil && (r.StatusCode != http.StatusOK || !strings.Contains(string(body), want)) {
			err = fmt.Errorf("it answers %s: %s", r.Status, body)
		}
		return err
	})
}

// awaitLog waits until the sidecar's log has a line with a level and a text.
func awaitLog(t *testing.T, s *servers.Sidecar, level, text string) {
	t.Helper()
	servers.Await(t, "a line of the log with "+text, func() error {
		for line := range strings.Lines(s.Output()) {
			if strings.Contains(line, "level="+level) && strings.Contains(line, text) {
				return nil
			}
		}
		return fmt.Errorf("the log is\n%s", s.Output())
	})
}

func wantBreakerClosed(t *testing.T, s *servers.Sidecar) {
	t.Helper()
	m, err := servers.Scrape(s.Debug)
	if err != nil {
		t.Fatalf("read the metrics: %v", err)
	}
	if state := m.Most("spillway_breaker_state"); state != 0 {
		t.Errorf("the breaker has the state %v, want closed", state)
	}
}
