// Package api checks the admin API of a running sidecar, and the API of a control, against the OpenAPI documents that
// they serve.
package api

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// rules have something of each kind that the API is about.
const rules = `
domain: shop
penalty: { cool_down: 1h, threshold: 2 }
costs:
  - { match: { methods: [POST] }, cost: 2 }
rules:
  - { name: each, scope: user, limit: 20/1h }
  - { name: gold, scope: user, match: { tiers: [gold] }, limit: 100/1h }
  - { name: search, scope: [user, endpoint], match: { endpoints: ["/search"] }, limit: 50/1h }
  - { name: wide, scope: [user, ip], limit: 1000/1h }
  - { name: monthly, scope: tenant, limit: { count: 1000, per: calendar_month, algorithm: fixed_window } }
  - { name: abusers, match: { users: [eve] }, action: block, reason: "No." }
users:
  carol: { tier: gold, limits: [5/1s] }
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 3 }
`

// token may do everything.
const token = "0123456789abcdef0123456789abcdef"

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// TestTheAPIDoesWhatItsDocumentSays lets schemathesis send what the document allows, and what it does not, to every
// operation but the stream of events, which does not end.
func TestTheAPIDoesWhatItsDocumentSays(t *testing.T) {
	t.Parallel()
	check(t, "http://"+begin(t), "schemathesis.toml", token, "--exclude-path", "/v1/events", "--max-examples", "20")
}

// TestTheControlDoesWhatItsDocumentSays does the same with a control that has something of each kind.
func TestTheControlDoesWhatItsDocumentSays(t *testing.T) {
	t.Parallel()
	secret, line, err := api.TokenFile.New("admin", "tester")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	must.Do(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
	c := servers.StartControl(t, "CONTROL_DATABASE_URL="+servers.Database(t).URL,
		"REDIS_URL="+servers.StartRedis(t).Addr, "CONTROL_TOKEN_FILE="+file)
	for _, made := range []struct{ method, path, body string }{
		{"POST", "versions", `{"text": "domain: shop\nrules:\n  - { name: each, scope: user, limit: 20/1h }\n"}`},
		{"PUT", "tiers/gold", `{"limits": [{"count": 5, "per": "1m"}]}`},
		{"PUT", "users/ann", `{"tier": "gold"}`},
		{"POST", "keys", `{"id": "ann-1", "user": "ann"}`},
		{"PUT", "blocks/ip/192.0.2.7", `{"reason": "No."}`},
	} {
		r, err := http.NewRequest(made.method, c.URL+"/v1/domains/shop/"+made.path, strings.NewReader(made.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secret)
		answer := must.Get(http.DefaultClient.Do(r))(t)
		answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s answers %s", made.method, made.path, answer.Status)
		}
	}
	check(t, c.URL, "control.toml", secret, "--max-examples", "4")
}

// check lets schemathesis send what the document allows, and what it does not.
func check(t *testing.T, url, config, token string, more ...string) {
	t.Helper()
	tool := filepath.Join(servers.Root(t), ".tools", "schemathesis", "bin", "st")
	if _, err := os.Stat(tool); err != nil {
		t.Fatalf("schemathesis is missing: make tools installs it: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, tool, append([]string{
		"--config-file", filepath.Join(servers.Root(t), "test", "api", config),
		"run", url + "/v1/openapi.json", "--header", "Authorization: Bearer " + token,
		"--seed", "1", "--generation-database", "none", "--no-color", "--warnings", "off",
	}, more...)...)
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("schemathesis: %v\n%s", err, out)
	}
	t.Logf("%s\nof the processor: %v", out, run.ProcessState.UserTime())
}

// begin starts a sidecar on a Redis of its own, and returns the address of its API.
func begin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "tokens": "operate tester " + token + "\n"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := servers.StartSidecar(t, "RULES="+filepath.Join(dir, "rules.yaml"), "REDIS_URL="+servers.StartRedis(t).Addr,
		"STORE_SILENCE=1s", "STORE_PATIENCE=2s",
		"ADMIN_TOKEN_FILE="+filepath.Join(dir, "tokens"))
	return s.Debug
}
