package integration

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

const wordsRules = `
domain: api
reset_format: unix
identity: { order: [ip], client_ip: { trusted_hops: 1 } }
rules:
  - name: each-user
    scope: user
    limit: 1/1h
    response: &plain { message: "{rule} is spent. Come again in {retry_after} s." }
  - name: one-user
    scope: user
    match: { users: [typed] }
    limit: 1/1h
    response: &typed
      headers: { content-type: application/json }
      message: '{"rule": "{rule}", "retry_after": {retry_after}}'
  - { name: plain-path, scope: endpoint, match: { endpoints: ["/plain"] }, limit: 1/1h, response: *plain }
  - { name: typed-path, scope: endpoint, match: { endpoints: ["/typed"] }, limit: 1/1h, response: *typed }
`

// TestWordsOfARuleReachTheClient: a template in the body, and x-ratelimit-reset as Unix time. On /internal Envoy asks
// the rate limit service, and elsewhere over ext_authz. Envoy's own x-ratelimit-reset, in seconds, is off.
func TestWordsOfARuleReachTheClient(t *testing.T) {
	w := startAuthz(t, authzSetup{
		rules: map[string]string{"authz.yaml": wordsRules},
		env:   []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=x-ratelimit-reset"},
		swaps: [][2]string{{"enable_x_ratelimit_headers: DRAFT_VERSION_03", `enable_x_ratelimit_headers: "OFF"`}},
	})
	for _, c := range []struct{ name, path, user, rule, kind string }{
		{"rate limit service, problem document", "/internal", "alice", "each-user", "application/problem+json"},
		{"rate limit service, own type", "/internal", "typed", "one-user", "application/json"},
		{"ext_authz, problem document", "/plain", "", "plain-path", "application/problem+json"},
		{"ext_authz, own type", "/typed", "", "typed-path", "application/json"},
	} {
		w.clean(t, c.name, func(t *testing.T) {
			resetsInAnHour(t, func() answer { return w.wants(t, 1, http.StatusOK, c.path, "x-user", c.user) })
			got := resetsInAnHour(t, func() answer {
				return w.wants(t, 1, http.StatusTooManyRequests, c.path, "x-user", c.user)
			})
			got.has(t, "content-type", c.kind)
			wait := got.header.Get("retry-after")
			between(t, got, "retry-after", 3500, 3600)
			body, want := got.body, `{"rule": "`+c.rule+`", "retry_after": `+wait+`}`
			if c.kind == "application/problem+json" {
				var problem struct{ Detail string }
				must.Do(t, json.Unmarshal([]byte(got.body), &problem))
				body, want = problem.Detail, c.rule+" is spent. Come again in "+wait+" s."
			}
			if body != want {
				t.Errorf("the client reads %q, want %q", body, want)
			}
		})
	}
}

// resetsInAnHour fails unless an answer has x-ratelimit-reset once: the Unix time in an hour.
func resetsInAnHour(t *testing.T, ask func() answer) answer {
	t.Helper()
	before := time.Now()
	got := ask()
	between(t, got, "x-ratelimit-reset", int(before.Unix())+3500, int(time.Now().Unix())+3601)
	got.has(t, "x-ratelimit-reset", got.header.Get("x-ratelimit-reset"))
	return got
}
