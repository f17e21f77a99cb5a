package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
)

// replayAs replays a log under rules, without a mapping unless one is given.
func replayAs(t *testing.T, rules, log string, m Mapping) *Report {
	t.Helper()
	return must.Get(Run(Config{Logs: []string{write(t, "a.log", log)}, Rules: []string{write(t, "a.yaml", rules)},
		Mapping: m}))(t)
}

// TestFieldsAreGuessedAndShown replays one log of each format without a word about its fields.
func TestFieldsAreGuessedAndShown(t *testing.T) {
	rules := "domain: shop\nrules:\n  - { name: per-user, scope: user, limit: 1/1m }\n"
	for name, c := range map[string]struct{ line, format, fields string }{
		"nginx": {
			`192.0.2.9 - ann [01/Mar/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8"`,
			"combined or common (nginx, Apache)",
			"time=time_local request=request peer=remote_addr code=status user=remote_user",
		},
		"nginx JSON": {
			`{"@timestamp":"2026-03-01T00:00:00+00:00","request_method":"GET","request_uri":"/",` +
				`"remote_addr":"192.0.2.9","remote_user":"","user_id":"ann","org_id":"acme"}`,
			"JSON",
			"time=@timestamp method=request_method path=request_uri peer=remote_addr user=user_id tenant=org_id",
		},
		"Istio": {strings.ReplaceAll(istioLine, "\n", ""), "Istio's text",
			"time=start_time method=method path=path host=authority x_forwarded_for=x_forwarded_for " +
				"peer=downstream_remote_address code=response_code"},
	} {
		r := replayAs(t, rules, strings.Repeat(c.line+"\n", 3), Mapping{})
		var fields []string
		for _, f := range r.Log.Fields {
			fields = append(fields, f.Is+"="+f.Field)
		}
		diff := cmp.Diff(c.fields, strings.Join(fields, " "))
		if diff != "" || strings.Join(r.Log.Formats, "") != c.format {
			t.Errorf("%s is read as %v (-want +got):\n%s", name, r.Log.Formats, diff)
		}
		want := int64(2)
		if name == "Istio" {
			want = 0
		}
		if r.Rules.Refused != want {
			t.Errorf("%s: %d refused, want %d", name, r.Rules.Refused, want)
		}
	}
	r := replayAs(t, rules, strings.Repeat(at(0, "ann", "192.0.2.1", "/"), 3),
		Mapping{Fields: map[string]string{"user": "-"}})
	if r.Rules.Refused != 0 {
		t.Errorf("a user was guessed in spite of the hyphen: %+v", r.Log.Fields)
	}
}

// TestRulesThatNeverAppliedSayWhy: for each there is a reason, and the flag that helps.
func TestRulesThatNeverAppliedSayWhy(t *testing.T) {
	const rules = `domain: shop
rules:
  - { name: per-user, scope: user, limit: 1/1m }
  - { name: per-tenant, scope: tenant, limit: 1/1m }
  - { name: pro, scope: ip, match: { tiers: [pro] }, limit: 1/1m }
  - { name: login, scope: ip, match: { endpoints: [/login], methods: [POST] }, limit: 1/1m }
  - { name: gold, scope: ip, match: { entries: { plan: gold } }, limit: 1/1m }
  - { name: narrow, scope: endpoint, match: { endpoints: ["/a/*"] }, limit: 100/1m }
  - { name: wide, scope: endpoint, limit: 100/1m }
  - { name: partners, scope: ip, match: { users: [p] }, limit: unlimited }
  - { name: health, match: { endpoints: [/healthz] }, action: allow }
users:
  bob: { limits: [1/1m] }
descriptors:
  - { key: plan, rate_limit: { unit: day, requests_per_unit: 5 } }
`
	line := `{"time":"2026-03-01T00:00:00Z","method":"GET","path":"%s","peer":"192.0.2.1","user_name":"ann",` +
		`"org":"a","customer":"b","user_agent":"x"}` + "\n"
	r := replayAs(t, rules, fmt.Sprintf(line, "/a/b")+fmt.Sprintf(line, "/healthz"), Mapping{})
	got := map[string]string{}
	for _, n := range r.Rules.Never {
		got[n.Rule] = n.Why
	}
	want := map[string]string{
		"per-user":   "no request has the attribute user; the log has the field user_name: --user user_name",
		"per-tenant": "no request has the attribute tenant; the log has the fields customer, org: --tenant FIELD",
		"pro": "no request has the attribute tier, and no field of the log looks like one: name it by --tier " +
			"FIELD",
		"login":    "no request meets its match (endpoints, methods), or another rule counts in its place",
		"gold":     "no request has the entry plan: --entry plan=FIELD",
		"wide":     "another rule counts in its place, or exempts every request",
		"partners": "no request has the attribute user; the log has the field user_name: --user user_name",
		"plan":     "a descriptor tree needs --descriptor, which says what Envoy's rate limit filter sends",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules that never applied (-want +got):\n%s", diff)
	}
	var text, page strings.Builder
	must.Do(t, r.WriteText(&text, 5))
	must.Do(t, r.WriteHTML(&page))
	for _, shown := range []string{text.String(), page.String()} {
		if !strings.Contains(shown, "--user user_name") || !strings.Contains(shown, "user_name: --user") {
			t.Errorf("the report does not show it:\n%s", shown)
		}
	}
}

// TestCostsArePaid: a post-paid limit is charged after the request, others take the cost where there is none.
func TestCostsArePaid(t *testing.T) {
	line := func(second, tokens int) string {
		return fmt.Sprintf(`{"time":"2026-03-01T00:00:%02dZ","method":"POST","path":"/chat","user":"ann","tokens":%d}`+
			"\n", second, tokens)
	}
	cost := Mapping{Fields: map[string]string{"cost": "tokens"}}
	descriptor := Mapping{Fields: cost.Fields, Descriptors: [][]Part{{{Key: "user", Field: "user"}}}}
	both := "domain: ai\nrules:\n  - { name: calls, scope: user, limit: 4/1h }\n" +
		"  - { name: tokens, scope: [user, endpoint], limit: 1000/1h, post_paid: true }\n"
	tree := "domain: ai\ndescriptors:\n  - { key: user, post_paid: true, rate_limit: { unit: hour, " +
		"requests_per_unit: 1000, algorithm: token_bucket } }\n"
	plain := "domain: ai\nrules:\n  - { name: tokens, scope: user, limit: 1000/1h }\n"
	log := line(0, 900) + line(1, 900) + line(2, 900) + line(3, 0)
	for name, c := range map[string]struct {
		rules string
		m     Mapping
		want  int64 // refused
	}{
		"two are within, then nothing is left": {both, cost, 2},
		"over the rate limit service":          {tree, descriptor, 2},
		"paid in advance":                      {plain, descriptor, 2}, // the second and the third
		"without a cost":                       {both, Mapping{}, 0},
	} {
		r := replayAs(t, c.rules, log, c.m)
		if r.Rules.Refused != c.want || r.Log.Requests != 4 {
			t.Errorf("%s: %d of %d refused, want %d: %+v", name, r.Rules.Refused, r.Log.Requests, c.want, r.Rules.Who)
		}
	}
}
