package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestRulesThatDoNothing: a rule without an effect is reported with its place and what was probably meant, and does not
// keep the rules from being used.
func TestRulesThatDoNothing(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a route template", `rules:
  - { name: a, scope: user, match: { endpoints: ["/users/{id}"] }, limit: 5/1m }
`, `3:50: endpoint "/users/{id}" looks like a route template, and is compared as it stands, so hardly any path ` +
			`matches it: did you mean "/users/*"?`},
		{"a route template with a colon", `rules:
  - { name: a, scope: user, match: { endpoints: ["/ok", "/orders/:id/lines"] }, limit: 5/1m }
`, `3:57: endpoint "/orders/:id/lines" looks like a route template, and is compared as it stands, so hardly any ` +
			`path matches it: did you mean "/orders/*/lines"?`},
		{"a regular expression", `rules:
  - { name: a, scope: user, match: { endpoints: ["^/api/.*$"] }, limit: 5/1m }
`, `3:50: endpoint "^/api/.*$" looks like a regular expression, and is compared as it stands, so hardly any path ` +
			`matches it: did you mean "/api/**"?`},
		{"a regular expression in a cost", `costs:
  - { match: { endpoints: ["/v[0-9]+/users/[^/]+"] }, cost: 5 }
`, `3:28: endpoint "/v[0-9]+/users/[^/]+" looks like a regular expression, and is compared as it stands, so hardly ` +
			`any path matches it: did you mean "/v*/users/*"?`},
		{"an unknown method", `rules:
  - { name: a, scope: user, match: { methods: [GET, PSOT] }, limit: 5/1m }
`, `3:53: unknown method "PSOT"; did you mean "POST"?`},
		{"a method that a POST may stand for", `rules:
  - { name: a, scope: user, match: { methods: [GET, delete] }, limit: 5/1m }
  - { name: b, scope: ip, match: { methods: [PUT] }, limit: 5/1m }
  - { name: c, scope: tenant, match: { methods: [POST, PUT] }, limit: 5/1m }
`, `3:47: a POST with a header like x-http-method-override may stand for a DELETE, and does not match; ` +
			`let Envoy remove such headers, or name POST too`},
		{"every method", `rules:
  - { name: a, scope: user, match: { methods: ["*"] }, limit: 5/1m }
`, `3:48: "*" is not a method; remove methods to match every one`},
		{"a displaced rule", `rules:
  - { name: posts, scope: user, match: { endpoints: ["/checkout"], methods: [POST, PUT] }, limit: 10/1m }
  - { name: gold,  scope: user, match: { endpoints: ["/checkout"], methods: [POST] }, limit: 100/1m }
`, `4:5: rule "gold" can never apply: rule "posts" (FILE:3:5) matches all that it matches and stands first: ` +
			`give this one a lower priority number or one more kind of condition, or remove it`},
		{"a rule displaced by priority", `rules:
  - { name: gold,  scope: user, match: { tenants: [acme] }, limit: 100/1m }
  - { name: all,   scope: user, match: { tenants: [acme, best] }, limit: 10/1m, priority: 1 }
`, `3:5: rule "gold" can never apply: rule "all" (FILE:4:5) matches all that it matches and has a lower priority ` +
			`number: ` +
			`give this one a lower number or one more kind of condition, or remove it`},
		{"a displaced endpoint", `rules:
  - { name: one, scope: ip, match: { endpoints: ["/a"] }, limit: 10/1m }
  - { name: two, scope: ip, match: { endpoints: ["/b", "/a/"] }, limit: 100/1m }
`, `4:56: endpoint "/a" of rule "two" never counts: rule "one" (FILE:3:5) matches all that it matches and stands ` +
			`first: ` +
			`give this one a lower priority number or one more kind of condition, or remove it`},
		{"an exempt rule", `rules:
  - { name: login, scope: ip, match: { endpoints: ["/static/login"], cidrs: ["10.1.0.0/16"] }, limit: 10/1m }
  - { name: files, match: { endpoints: ["/static/**"], cidrs: ["10.0.0.0/8"] }, action: allow }
`, `3:5: rule "login" can never apply: rule "files" (FILE:4:5) exempts all that it matches: narrow that one, or ` +
			`remove this one`},
		{"an allow behind a block", `rules:
  - { name: good, match: { users: [mallory] }, action: allow }
  - { name: bad,  match: { users: [mallory, eve] }, action: block }
`, `3:5: rule "good" can never apply: rule "bad" (FILE:4:5) blocks all that it matches: narrow that one, or remove ` +
			`this one`},
		{"evidence without its section", `identity:
  order: [jwt, ip]
`, "3:11: order names jwt, and identity has no jwt, so it never yields an identity; add the section `jwt`, or " +
			"remove jwt here"},
		{"keys without their section", `identity:
  order: [api_key, ip]
`, "3:11: order names api_key, and identity has no api_keys, so it never yields an identity; add the section " +
			"`api_keys`, or remove api_key here"},
		{"post_paid over ext_authz", `identity:
  client_ip: { trusted_hops: 1 }
rules:
  - { name: llm, scope: ip, limit: 1000/1m, post_paid: true }
`, `5:5: rule "llm" never refuses over ext_authz: post_paid needs the rate limit service, which asks before and ` +
			`charges after a request. This domain ` +
			`looks like one of ext_authz (it has identity and neither descriptors nor attributes): if it is, remove ` +
			`post_paid`},
		{"a cost above the burst", `rules:
  - { name: heavy, scope: user, limit: { count: 100, per: 1m, burst: 5 }, cost: 10 }
`, `3:40: no request can pass rule "heavy": its cost of 10 is above the 5 that the limit can hold: lower the cost, ` +
			`or raise the burst`},
		{"a row's cost above the burst", `costs:
  - { match: { endpoints: ["/reports/**"] }, cost: 20 }
rules:
  - { name: per-user, scope: user, limit: 10/1m }
`, `3:5: a request that costs 20 by this row can never pass rule "per-user" (FILE:5:5), whose limit holds 10: lower ` +
			`the cost, or raise the limit's burst`},
		{"a row's cost above a narrower rule's burst", `costs:
  - { cost: 20 }
rules:
  - { name: exports, scope: user, match: { endpoints: ["/export"] }, limit: 10/1m }
`, `3:5: a request that costs 20 by this row can never pass rule "exports" (FILE:5:5), whose limit holds 10: lower ` +
			`the cost, or raise the limit's burst`},
		{"a row behind a wider one", `costs:
  - { match: { endpoints: ["/reports/**"] }, cost: 2 }
  - { match: { endpoints: ["/reports/daily", "/reports/yearly"], methods: [POST] }, cost: 5 }
rules:
  - { name: per-user, scope: user, limit: 10/1m }
`, `4:5: this row can never apply: the row at FILE:3:5 matches all that it matches and stands first: put this one ` +
			`before it, or remove it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			load, file := loadText(t, "domain: shop\n"+c.text)
			if load.Rejected() {
				t.Error("the rules are refused")
			}
			place, text, _ := strings.Cut(c.want, ": ")
			want := file + ":" + place + ": warning: " + strings.ReplaceAll(text, "FILE", file) + "\n"
			if diff := cmp.Diff(want, load.Text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRulesThatDoSomething: what looks much like the above and has its use.
func TestRulesThatDoSomething(t *testing.T) {
	for name, text := range map[string]string{
		"more kinds of conditions": `rules:
  - { name: posts, scope: user, match: { endpoints: ["/checkout"], methods: [POST] }, limit: 10/1m }
  - { name: gold,  scope: user, match: { endpoints: ["/checkout"], methods: [POST], tenants: [acme] }, limit: 100/1m }
`,
		"one of two methods": `rules:
  - { name: posts, scope: user, match: { methods: [POST] }, limit: 10/1m }
  - { name: gold,  scope: user, match: { methods: [POST, PUT] }, limit: 100/1m }
`,
		"other scopes, shadows and ends": `rules:
  - { name: a, scope: user, limit: 10/1m }
  - { name: b, scope: ip, limit: 10/1m }
  - { name: c, scope: user, limit: 10/1m, action: log_only }
  - { name: d, scope: user, limit: 10/1m, enabled: false }
  - { name: e, match: { users: [mallory] }, action: block, until: 2126-01-01T00:00:00Z }
  - { name: f, scope: ip, match: { users: [mallory] }, limit: 10/1m }
`,
		"an allow for known users alone": `rules:
  - { name: a, scope: user, match: { endpoints: ["/a"] }, action: allow }
  - { name: b, scope: ip, match: { endpoints: ["/a"] }, limit: 10/1m }
`,
		"unusual endpoints": `rules:
  - { name: dots, match: { endpoints: ["/.*", "/**/.git/**"] }, action: block }
  - { name: a, scope: user, limit: 5/1m, match: { endpoints: ["/report.*", "/Products(1)", "/$metadata",
      "/v1/jobs:cancel", "/a+b"], methods: [propfind] } }
`,
		"post_paid over both": `identity:
  client_ip: { trusted_hops: 1 }
attributes: { model: tier }
rules:
  - { name: llm, scope: ip, limit: 1000/1m, post_paid: true }
`,
		"a row before a wider one, and one with more endpoints": `costs:
  - { match: { endpoints: ["/reports/daily"] }, cost: 5 }
  - { match: { endpoints: ["/reports/**"] }, cost: 2 }
  - { match: { endpoints: ["/reports/daily", "/exports"] }, cost: 3 }
rules:
  - { name: per-user, scope: user, limit: 10/1m }
`,
		"costs that fit": `costs:
  - { match: { endpoints: ["/reports/**"] }, cost: 20 }
rules:
  - { name: per-user, scope: user, limit: 10/1m }
  - { name: reports, scope: user, match: { endpoints: ["/reports/**"] }, limit: 40/1h }
  - { name: own, scope: ip, limit: 10/1m, cost: 2 }
`,
	} {
		if load, _ := loadText(t, "domain: shop\n"+text); load.Text() != "" {
			t.Errorf("%s: %s", name, load.Text())
		}
	}
}

// loadText loads one file with this text.
func loadText(t *testing.T, text string) (load Load, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "shop.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return NewFiles(FilesConfig{Path: file}).Load(), file
}
