package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOneMistakeHidesNoOther: what is left out because it is broken still has its name and its scope checked.
func TestOneMistakeHidesNoOther(t *testing.T) {
	text := "domain: d\nrules:\n" +
		"  - name: a\n    limit: 5/1x\n" +
		"  - { name: a, scope: user, limit: 5/1m, priority: high }\n" +
		"  - { name: b, limit: 5/1m, action: allow, cost: 0 }\n" +
		"  - { name: \"c\\n\", limit: 5/1m }\n" +
		"  - d\n"
	load := new(Files).compile([]source{{path: "a.yaml", text: []byte(text)}}, nil)
	want := []string{
		`3:5: rule "a" has a limit and no scope: add scope: global, tenant, user, ip, endpoint, client, api_key or ` +
			`tier, or a list`,
		`4:12: limit: "1x" must be a duration: a whole number and a unit of ms, s, m, h or d, such as 250ms, 1m ` +
			`or 7d`,
		`5:5: duplicate rule name "a", which a.yaml:3:5 has already: rename one of them`,
		`5:52: priority wants a whole number, not the text "high"`,
		`6:5: warning: rule "b" has no match and so exempts every request: if that is not meant, add match:`,
		`6:5: rule "b" is a block or allow and has a limit, which would never count: remove one of them`,
		`6:50: cost is 0; it must be between 1 and 9007199254740992`,
		`7:5: rule "in line 7" has a limit and no scope: add scope: global, tenant, user, ip, endpoint, client, ` +
			`api_key ` +
			`or tier, or a list`,
		`7:13: name has control characters, such as a line break; remove them`,
		`8:5: an item of rules wants a map, not the text "d"`,
	}
	if diff := cmp.Diff(want, brief(load.Problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if load.Set != nil {
		t.Error("broken rules were compiled")
	}
}

// TestAllProblemsOfOneRule: a broken limit does not hide what the action needs.
func TestAllProblemsOfOneRule(t *testing.T) {
	text := "domain: d\nrules:\n  - name: a\n    scope: user\n    action: throttle\n" +
		"    limit: { count: 5, per: 1m, burst: 9, algorithm: sliding_window }\n"
	load := new(Files).compile([]source{{path: "a.yaml", text: []byte(text)}}, nil)
	want := []string{
		`3:5: rule "a" throttles without max_delay: say how long a request may wait, as in max_delay: 500ms`,
		`6:12: rule "a" throttles, which needs algorithm: token_bucket, not sliding_window`,
		`6:40: burst holds for token_bucket only, not for sliding_window; remove it`,
	}
	if diff := cmp.Diff(want, brief(load.Problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestSecretsAreNotShown: an API key in place of its digest is in no problem, wherever it stands.
func TestSecretsAreNotShown(t *testing.T) {
	for _, keys := range []string{
		"[{ id: a, sha256: hunter2-secret }]", "[{ id: a, sha256: [hunter2-secret] }]", "[hunter2-secret]",
		"[{ id: a, sha256: 1.5e77 }]",
	} {
		text := "domain: d\nidentity: { api_keys: { header: x-api-key, keys: " + keys + " } }\n"
		_, problems := Decode("a.yaml", []byte(text))
		all := FormatProblems(problems)
		if len(problems) == 0 || strings.Contains(all, "hunter2") || strings.Contains(all, "1.5e77") {
			t.Errorf("%s: problems %s", keys, all)
		}
	}
}

// TestTiers: a tier that no client has, or that no rule names, is reported where clients cannot bring others.
func TestTiers(t *testing.T) {
	const pro = "rules:\n  - { name: a, scope: user, match: { tiers: [pro] }, limit: 5/1m }\n"
	const identity = "identity: { api_keys: { header: x-api-key, keys: [{ id: k, sha256: \"" +
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\", tier: free }] } }\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a slip": {pro + "tenants: { acme: { tier: prro } }\n", []string{
			`4:12: warning: "acme" has the tier "prro", which no rule names; did you mean "pro"?`}},
		"no rule": {pro + "users: { ann: { tier: gold } }\n", []string{
			`4:10: warning: "ann" has the tier "gold", which no rule names, so the tier has no effect; ` +
				`rules name pro`}},
		"own limits": {pro + "users: { ann: { tier: gold, limits: [5/1m] } }\n", nil},
		"by tier":    {pro + "  - { name: b, scope: tier, limit: 5/1m }\nusers: { ann: { tier: gold } }\n", nil},
		"no rule names any": {"rules: [{ name: a, scope: user, limit: 5/1m }]\nusers: { ann: { tier: gold } }\n",
			[]string{
				`3:10: warning: "ann" has the tier "gold", which no rule names, so the tier has no effect; no rule ` +
					`has ` +
					"`match: { tiers: [...] }`"}},
		"a slip of a key": {pro + strings.Replace(identity, "tier: free", "tier: prro", 1), []string{
			`3:5: warning: rule "a" is about the tier "pro", which no user, tenant or API key of the file has; ` +
				`give it to ` +
				`one, or remove it here, unless profiles give it`,
			`4:51: warning: "k" has the tier "prro", which no rule names; did you mean "pro"?`}},
		"nobody has a name": {pro + "identity: { order: [ip] }\nusers: { ann: { tier: pro } }\n", []string{
			`3:5: warning: rule "a" can never apply over ext_authz: it is about tiers, and the order of identity ` +
				`shows ` +
				`no user, tenant or API key that could have one; add jwt, api_key or mtls to order, before ip`}},
		"a name behind ip": {pro + "identity: { order: [ip, mtls] }\nusers: { ann: { tier: pro } }\n", []string{
			`3:5: warning: rule "a" can never apply over ext_authz: it is about tiers, and the order of identity ` +
				`shows ` +
				`no user, tenant or API key that could have one; add jwt, api_key or mtls to order, before ip`,
			`4:25: warning: mtls is never asked: ip stands before it and yields an identity for every address; put ` +
				`ip last`}},
		"by name": {pro + "identity: { order: [mtls, ip] }\nusers: { ann: { tier: pro } }\n", nil},
		"a tenant that nothing shows": {pro + "identity: { order: [mtls, ip] }\ntenants: { acme: { tier: pro } " +
			"}\n", []string{
			`3:5: warning: rule "a" is about the tier "pro", which no user, tenant or API key of the file has; ` +
				`give it to ` +
				`one, or remove it here, unless profiles give it`}},
		"tokens without the claim": {pro + "identity: { jwt: [{ issuer: i, jwks: \"https://a.example/k\" }] }\n",
			[]string{
				`3:5: warning: rule "a" is about the tier "pro", which no user, tenant or API key of the file has; ` +
					`give it to ` +
					`one, or remove it here, unless profiles give it`}},
		"from Envoy": {pro, nil},
		"no client has it": {pro + identity, []string{`3:5: warning: rule "a" is about the tier "pro", which no ` +
			`user, tenant or API key of the file has; give it to one, or remove it here, unless profiles give it`,
			`4:51: warning: "k" has the tier "free", which no rule names, so the tier has no effect; rules name pro`}},
		"from tokens": {pro + strings.Replace(strings.Replace(identity, ", tier: free", "", 1), "identity: {",
			"identity: { jwt: [{ issuer: i, "+
				"jwks: \"https://a.example/k\", claims: { tier: plan } }],", 1), nil},
	} {
		load := new(Files).compile([]source{{path: "a.yaml", text: []byte("domain: d\n" + c.text)}}, nil)
		if diff := cmp.Diff(c.want, brief(load.Problems)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAPenaltyIsReportedOnce: what a penalty lacks is not out of its range as well.
func TestAPenaltyIsReportedOnce(t *testing.T) {
	for text, want := range map[string]string{
		"penalty: { threshold: 5 }\nrules: [{ name: a, scope: ip, limit: 5/1m }]\n": "2:10: this penalty has no " +
			"cool_down; " +
			"add it",
		"rules:\n  - { name: a, scope: ip, limit: 5/1m, penalty: { threshold: 0, detection_window: 1m, cool_down: " +
			"1m } }\n": "" +
			"3:62: threshold is 0; it must be between 1 and 1000",
	} {
		load := new(Files).compile([]source{{path: "a.yaml", text: []byte("domain: d\n" + text)}}, nil)
		if diff := cmp.Diff([]string{want}, brief(load.Problems)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
