package integration

import (
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOverrideBeyondTenYears: the longest window is ten years, and an override that asks for more gets that one. A
// limit that is ignored would admit.
func TestOverrideBeyondTenYears(t *testing.T) {
	s := servers.StartSidecar(t, "RULES="+ruleFile(t, "domain: shop\n"), "REDIS_URL="+servers.StartRedis(t).Addr,
		storeSilence, storePatience)
	for i, override := range []string{
		`{"requestsPerUnit": 2, "unit": "YEAR", "unitMultiplier": 11}`,
		// the same window, so the same counter
		`{"requestsPerUnit": 2, "unit": "SECOND", "unitMultiplier": 4294967295}`,
		`{"requestsPerUnit": 2, "unit": "MONTH", "unitMultiplier": 4294967295}`,
	} {
		want := "OK"
		if i == 2 {
			want = "OVER_LIMIT"
		}
		got := askJSON(t, s, `{"entries": [{"key": "user", "value": "alice"}], "limit": `+override+`}`)
		if !strings.Contains(got, `"overallCode":"`+want+`"`) || !strings.Contains(got, `"unitMultiplier":10`) {
			t.Errorf("request %d is answered %s, want %s of ten years", i+1, got, want)
		}
	}
}

// askJSON asks a sidecar about one descriptor of the domain shop, over /json, and returns its answer.
func askJSON(t *testing.T, s *servers.Sidecar, descriptor string) string {
	t.Helper()
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+s.HTTP+"/json",
		strings.NewReader(`{"domain": "shop", "descriptors": [`+descriptor+`]}`)))(t)
	got, err := do(http.DefaultClient, r)
	if err != nil {
		t.Fatalf("ask the sidecar over /json: %v", err)
	}
	return got.body
}

// ruleFile writes a file of rules and returns its name.
func ruleFile(t *testing.T, text string) string {
	t.Helper()
	w := world{rules: t.TempDir()}
	w.writeRule(t, "rules.yaml", text)
	return w.rules + "/rules.yaml"
}

// TestLongHeaderValuesLeaveWhole: what a rule file may hold as the value of a header reaches the client to the last
// byte, through both filters.
func TestLongHeaderValuesLeaveWhole(t *testing.T) {
	long := strings.Repeat("v", 4095) + "."
	response := "response: { headers: { x-help: \"" + long + "\" } }\n"
	w := startAuthz(t, authzSetup{rules: map[string]string{
		"authz.yaml": "domain: api\nrules:\n  - name: none\n    scope: ip\n    limit: 0/1m\n    " + response,
	}})
	w.clean(t, "ext_authz", func(t *testing.T) {
		w.wants(t, 1, http.StatusTooManyRequests, "/").has(t, "x-help", long)
	})

	w = start(t, setup{rules: map[string]string{
		"reference.yaml": "domain: edge\ndescriptors:\n  - key: user\n" +
			"    rate_limit: { unit: minute, requests_per_unit: 0 }\n    " + response,
	}})
	w.noErrors(t, "rate limit service", func(t *testing.T) {
		w.wants(t, 1, http.StatusTooManyRequests, "/", "x-user", "alice").has(t, "x-help", long)
	})
}

// TestWarningsAreLoggedAndTheRulesServe: rules that load and do nothing are in the log, with their place, and the rest
// of the file holds.
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
		`:11:5: warning: rule \"late\" never refuses over ext_authz`,
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
		got := askJSON(t, s, `{"entries": [{"key": "remote_address", "value": "192.0.2.1"}, {"key": "path", `+
			`"value": "/a"}]}`)
		if !strings.Contains(got, `"overallCode":"`+want+`"`) {
			t.Errorf("request %d is answered %s, want %s", i+1, got, want)
		}
	}
}

const everyKind = `domain: shop
costs:
  - { match: { endpoints: ["/dear"] }, cost: 5 }
identity:
  api_keys:
    header: x-api-key
    keys:
      - { id: ci, sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", user: bot }
rules:
  - { name: a, scope: user, match: { endpoints: ["/a"], methods: [POST] }, limit: { count: 10, per: 1m, burst: 20 },
      cost: 2, priority: 7 }
  - { name: b, match: { users: [mallory] }, action: block, reason: "No." }
`

// TestTheHashAndThePageSeeEveryChange: the hash of the rules in use differs after any change of the file and is the
// same for the same file elsewhere; the page of the rules shows what has changed.
func TestTheHashAndThePageSeeEveryChange(t *testing.T) {
	file := ruleFile(t, everyKind)
	s := servers.StartSidecar(t, "RULES="+file)
	first := configHash(t, s)
	if other := configHash(t, servers.StartSidecar(t, "RULES="+ruleFile(t, everyKind))); other != first {
		t.Errorf("the same rules have the hashes %s and %s", first, other)
	}
	seen := map[string]string{first: "the first"}
	w := world{rules: filepath.Dir(file)}
	for _, c := range []struct{ name, from, to, shown string }{
		{"match", "methods: [POST]", "methods: [PUT]", `match: {endpoints: ["/a"], methods: ["PUT"]}`},
		{"burst", "burst: 20", "burst: 21", "burst: 21"},
		{"cost", "cost: 2,", "cost: 3,", "cost: 3"},
		{"row of costs", "cost: 5 }", "cost: 6 }", `cost.1: match: {endpoints: ["/dear"]}, cost: 6`},
		{"priority", "priority: 7", "priority: 8", "priority: 8"},
		{"action", "priority: 7", "priority: 7, action: throttle, max_delay: 20ms", "action: throttle, priority: 7"},
		{"key", "id: ci", "id: cd", `keys: [{id: "cd"`},
		{"digest of a key", `"9f86d0`, `"8f86d0`, "8f86d081…"},
		{"block", "[mallory]", "[eve]", `match: {users: ["eve"]}`},
		{"reason", "No.", "Never.", `reason: "Never."`},
		{"comment", "rules:", "rules: # a comment", "shop.rule.a: unit=MINUTE requests_per_unit=10"},
		{"back again", "", "", "burst: 20"},
	} {
		before := configHash(t, s)
		w.writeRule(t, "rules.yaml", strings.Replace(everyKind, c.from, c.to, 1))
		servers.Await(t, "the reload after the change of "+c.name, func() error {
			if configHash(t, s) == before {
				return errors.New("the hash is still " + before)
			}
			return nil
		})
		hash := configHash(t, s)
		if known := seen[hash]; known != "" && c.name != "back again" {
			t.Errorf("the change of %s has the hash of %s, %s", c.name, known, hash)
		}
		seen[hash] = c.name
		if page := debugPage(t, s, "/rlconfig"); !strings.Contains(page, c.shown) {
			t.Errorf("/rlconfig does not show the change of %s, %s:\n%s", c.name, c.shown, page)
		}
	}
	if last := configHash(t, s); last != first {
		t.Errorf("the first rules again have the hash %s, want %s", last, first)
	}
}

var hashOf = regexp.MustCompile(`spillway_config_info\{hash="([0-9a-f]+)"\} 1`)

// configHash is the hash of the rules in use as the metrics show it.
func configHash(t testing.TB, s *servers.Sidecar) string {
	t.Helper()
	found := hashOf.FindStringSubmatch(debugPage(t, s, "/metrics"))
	if found == nil {
		t.Fatal("the metrics show no hash of the rules")
	}
	return found[1]
}

// debugPage is a page of the debug port.
func debugPage(t testing.TB, s *servers.Sidecar, path string) string {
	t.Helper()
	r := must.Get(http.NewRequest(http.MethodGet, "http://"+s.Debug+path, nil))(t)
	got, err := do(http.DefaultClient, r)
	if err != nil || got.status != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", path, got.status, err)
	}
	return got.body
}

// TestMoreKindsOfConditionsWin: an exception that names the methods of a rule and tenants besides holds for these
// tenants, behind the rule it is an exception to and with a higher priority number.
func TestMoreKindsOfConditionsWin(t *testing.T) {
	s := servers.StartSidecar(t, "RULES="+ruleFile(t, `domain: shop
rules:
  - { name: checkout, scope: user, match: { endpoints: ["/checkout"], methods: [POST] }, limit: 1/1h }
  - { name: gold, scope: user, match: { endpoints: ["/checkout"], methods: [POST], tenants: [acme] }, limit: 10/1h,
      priority: 500 }
`))
	if strings.Contains(s.Output(), "level=WARN") {
		t.Errorf("the rules have warnings:\n%s", s.Output())
	}
	for tenant, want := range map[string]int{"acme": 10, "other": 1} {
		passed := 0
		for range 12 {
			got := askJSON(t, s, `{"entries": [{"key": "user", "value": "of-`+tenant+`"}, {"key": "tenant", "value": "`+
				tenant+`"},
				{"key": "path", "value": "/checkout"}, {"key": "method", "value": "POST"}]}`)
			if strings.Contains(got, `"overallCode":"OK"`) {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%d requests of tenant %s pass, want %d", passed, tenant, want)
		}
	}
}
