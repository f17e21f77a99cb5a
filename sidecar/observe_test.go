package sidecar

import (
	"fmt"
	"strings"
	"testing"
)

const manyKinds = `
domain: shop
rules:
  - {name: out, match: {users: [mallory]}, action: block}
  - {name: in, match: {users: [boss]}, action: allow}
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: free
    rate_limit: {unlimited: true}
  - key: path
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 2}
`

// sendJSON posts one descriptor with a key and a value to a domain.
func sendJSON(t *testing.T, s *running, domain, key, value, more string) {
	t.Helper()
	post(t, s.Addresses().HTTP, fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":%q,"value":%q}]%s}]}`,
		domain, key, value, more))
}

func TestEveryRequestIsCounted(t *testing.T) {
	s := begin(t, manyKinds)
	sendJSON(t, s, "shop", "user", "alice", "")
	sendJSON(t, s, "shop", "user", "alice", `,"hitsAddend":"3"`)
	sendJSON(t, s, "shop", "user", "alice", `,"hitsAddend":"0"`)
	sendJSON(t, s, "shop", "user", "mallory", "")
	sendJSON(t, s, "shop", "user", "boss", "")
	sendJSON(t, s, "shop", "free", "x", `,"hitsAddend":"5"`)
	sendJSON(t, s, "shop", "path", "/a", "")
	sendJSON(t, s, "shop", "nobody", "x", "")
	sendJSON(t, s, "nowhere", "user", "x", "")
	sendJSON(t, s, "shop", "user", "dave", `,"limit":{"requestsPerUnit":1}`)
	_, page := fetch(t, s.Addresses().Debug, "/stats")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 5`,
		`ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"} 2`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"} 2`,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="free"} 5`,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="path_/a"} 1`,
		`ratelimit_service_rate_limit_domain_not_found 1`,
		`spillway_decisions_total{domain="shop",outcome="blocked",rule="out",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="exempt",rule="in",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="no_limit",rule="",scope=""} 1`,
		`spillway_decisions_total{domain="",outcome="unknown_domain",rule="",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="refused",rule="user",scope="descriptor"} 2`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="user",scope="descriptor"} 2`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="path",scope="descriptor"} 1`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="free",scope="descriptor"} 1`,
		`spillway_bad_overrides_total 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("/stats lacks %q:\n%s", want, page)
		}
	}
}
