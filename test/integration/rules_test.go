package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOverrideBeyondTenYears: the longest window is ten years, and an override that asks for more gets that one. A limit that is
// ignored would admit.
func TestOverrideBeyondTenYears(t *testing.T) {
	s := servers.StartSidecar(t, "RULES="+ruleFile(t, "domain: shop\n"), "REDIS_URL="+servers.StartRedis(t).Addr, storeBudget)
	ask := func(override string) (code string, body string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, "http://"+s.HTTP+"/json", strings.NewReader(
			`{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "alice"}], "limit": `+override+`}]}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := do(http.DefaultClient, r)
		if err != nil {
			t.Fatal(err)
		}
		var reply struct {
			Code string `json:"overallCode"`
		}
		err = json.Unmarshal([]byte(got.body), &reply)
		if err != nil {
			t.Fatalf("%v in %q", err, got.body)
		}
		return reply.Code, got.body
	}
	for i, override := range []string{
		`{"requestsPerUnit": 2, "unit": "YEAR", "unitMultiplier": 11}`,
		`{"requestsPerUnit": 2, "unit": "SECOND", "unitMultiplier": 4294967295}`, // the same window, so the same counter
		`{"requestsPerUnit": 2, "unit": "MONTH", "unitMultiplier": 4294967295}`,
	} {
		want := "OK"
		if i == 2 {
			want = "OVER_LIMIT"
		}
		if code, body := ask(override); code != want || !strings.Contains(body, `"unitMultiplier":10`) {
			t.Errorf("request %d is answered %s, want %s of ten years", i+1, body, want)
		}
	}
}

// ruleFile writes a file of rules and returns its name.
func ruleFile(t *testing.T, text string) string {
	t.Helper()
	w := world{rules: t.TempDir()}
	w.writeRule(t, "rules.yaml", text)
	return w.rules + "/rules.yaml"
}

// TestLongHeaderValuesLeaveWhole: what a rule file may hold as the value of a header reaches the client to the last byte, through
// both filters.
func TestLongHeaderValuesLeaveWhole(t *testing.T) {
	long := strings.Repeat("v", 4095) + "."
	response := "response: { headers: { x-help: \"" + long + "\" } }\n"
	w := startAuthz(t, authzSetup{rules: map[string]string{
		"authz.yaml": "domain: api\nrules:\n  - name: none\n    scope: ip\n    limit: 0/1m\n    " + response,
	}})
	w.clean(t, "ext_authz", func(t *testing.T) { w.wants(t, 1, http.StatusTooManyRequests, "/").has(t, "x-help", long) })

	w = start(t, setup{rules: map[string]string{
		"reference.yaml": "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: { unit: minute, requests_per_unit: 0 }\n    " + response,
	}})
	w.noErrors(t, "rate limit service", func(t *testing.T) {
		w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "alice").has(t, "x-help", long)
	})
}

// TestWarningsAreLoggedAndTheRulesServe: rules that load and do nothing are in the log, with their place, and the rest of the file
// holds.
func TestWarningsAreLoggedAndTheRulesServe(t *testing.T) {
	file := ruleFile(t, `domain: shop
costs:
  - { match: { endpoints: ["/dear"] }, cost: 50 }
identity:
  order: [jwt, ip]
rules:
  - { name: template, scope: user, match: { endpoints: ["/users/{id}"] }, limit: 5/1m }
  - { name: typo, scope: user, match: { methods: [PSOT] }, limit: 5/1m }
  - { name: first, scope: ip, match: { endpoints: ["/a"] }, limit: 2/1m }
  - { name: second, scope: ip, match: { endpoints: ["/a"] }, limit: 20/1m }
  - { name: late, scope: tenant, limit: 10/1m, post_paid: true }
  - { name: dear, scope: [user, ip], limit: 5/1m, cost: 6 }
  - { name: small, scope: endpoint, limit: 10/1m }
`)
	s := servers.StartSidecar(t, "RULES="+file)
	for _, want := range []string{
		`:3:5: warning: a request that costs 50 by this row can never pass rule \"small\" (` + file + `:13:5)`,
		`:5:11: warning: order names jwt`,
		`:7:57: warning: endpoint \"/users/{id}\" looks like a route template`,
		`:8:51: warning: unknown method \"PSOT\"; did you mean \"POST\"?`,
		`:10:5: warning: rule \"second\" can never apply: rule \"first\" (` + file + `:9:5)`,
		`:11:5: warning: rule \"late\" can never refuse`,
		`:12:45: warning: no request can pass rule \"dear\"`,
	} {
		if !strings.Contains(s.Output(), `level=WARN msg="`+file+want) {
			t.Errorf("the log has no warning %s%s:\n%s", file, want, s.Output())
		}
	}
	if n := strings.Count(s.Output(), "level=WARN"); n != 7 {
		t.Errorf("%d warnings, want 7:\n%s", n, s.Output())
	}
	for i, want := range []string{"OK", "OK", "OVER_LIMIT"} {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.HTTP+"/json", strings.NewReader(
			`{"domain": "shop", "descriptors": [{"entries": [{"key": "remote_address", "value": "192.0.2.1"}, {"key": "path", "value": "/a"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := do(http.DefaultClient, r)
		if err != nil || !strings.Contains(got.body, `"overallCode":"`+want+`"`) {
			t.Errorf("request %d is answered %s (%v), want %s", i+1, got.body, err, want)
		}
	}
}
