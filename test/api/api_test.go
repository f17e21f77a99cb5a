// Package api checks the admin API of a running sidecar against the OpenAPI document that it serves.
package api

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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

// TestTheAPIDoesWhatItsDocumentSays lets schemathesis send what the document allows, and what it does not, to every operation but the
// stream of events, which does not end.
func TestTheAPIDoesWhatItsDocumentSays(t *testing.T) {
	tool := filepath.Join(servers.Root(t), ".tools", "schemathesis", "bin", "st")
	if _, err := os.Stat(tool); err != nil {
		t.Fatalf("schemathesis is missing: make tools installs it: %v", err)
	}
	address := begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, tool, "--config-file", filepath.Join(servers.Root(t), "test", "api", "schemathesis.toml"),
		"run", "http://"+address+"/v1/openapi.json", "--header", "Authorization: Bearer "+token, "--exclude-path", "/v1/events",
		"--max-examples", "20", "--seed", "1", "--generation-database", "none", "--no-color", "--warnings", "off")
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("schemathesis: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// begin starts a sidecar on a Redis of its own, and returns the address of its API.
func begin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": rules, "tokens": "operate tester " + token + "\n"} {
		err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	s := servers.StartSidecar(t, "RULES="+filepath.Join(dir, "rules.yaml"), "REDIS_URL="+servers.StartRedis(t).Addr, "STORE_BUDGET=1s",
		"ADMIN_TOKEN_FILE="+filepath.Join(dir, "tokens"))
	return s.Debug
}
