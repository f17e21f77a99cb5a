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
