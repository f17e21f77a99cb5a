package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// TestCountersThatNoRequestUses holds what is idle against what requests of the same holder are charged.
func TestCountersThatNoRequestUses(t *testing.T) {
	one := []Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 9, Window: 1e9}}}
	rule := func(name string, scope Scope, match Conditions) Rule {
		return Rule{Name: name, Scope: scope, HasScope: true, Limits: one, Match: match}
	}
	set, problems := Compile([]Domain{{
		Name: "shop",
		Rules: []Rule{
			rule("per-user", ScopeUser, Conditions{}), rule("gold", ScopeUser, Conditions{Tiers: []string{"gold"}}),
			rule("search", ScopeUser, Conditions{Methods: []string{"POST"}, Tiers: []string{"gold"}}),
			rule("eve", ScopeUser, Conditions{Users: []string{"eve"}}), rule("per-tenant", ScopeTenant, Conditions{}),
		},
		Users: []Account{{Name: "alice", Tier: "gold"}, {Name: "bob", Limits: one}, {Name: "eve", Limits: one}},
	}}, Options{})
	if set == nil {
		t.Fatal(problems)
	}
	const tier, other = "it is for a tier, and none is given or in its profile", "it is for others"
	for name, c := range map[string]struct {
		of   Holder
		want map[string]string
	}{
		"a user alone": {Holder{User: "zoe"},
			map[string]string{"per-user": "", "gold": tier, "search": tier, "eve": other}},
		"of a tier in the tables": {Holder{User: "alice"},
			map[string]string{"per-user": "gold takes its place", "gold": "", "search": "", "eve": other}},
		"of a tier that is given": {Holder{User: "zoe", Tier: "gold"},
			map[string]string{"per-user": "gold takes its place", "gold": "", "search": "", "eve": other}},
		"of another tier": {Holder{User: "zoe", Tier: "iron"},
			map[string]string{"per-user": "", "gold": other, "search": other, "eve": other}},
		"with limits of its own": {Holder{User: "bob"}, map[string]string{"per-user": "its own limit takes its place",
			"gold": tier, "search": tier, "eve": other, "user": ""}},
		"with a rule of its own": {Holder{User: "eve"}, map[string]string{"per-user": "eve takes its place",
			"gold": tier, "search": tier, "eve": "", "user": "eve takes its place"}},
		"a tenant": {Holder{Tenant: "acme"}, map[string]string{"per-tenant": ""}},
	} {
		found, _ := set.Domain("shop").Counters(c.of, nil)
		got, keys := map[string]string{}, map[string]string{}
		for _, one := range found {
			got[one.Effect.Rule], keys[one.Charge.Key] = one.Idle, one.Idle
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, method := range []string{"GET", "POST"} {
			var m Match
			set.Match(&Request{Domain: "shop", Subject: &Subject{Method: method, Path: "/", Client: identity.Client{
				User: c.of.User, Tenant: c.of.Tenant, Tier: c.of.Tier}}}, &m)
			for _, charge := range m.Charges {
				if idle, listed := keys[charge.Key]; idle != "" || !listed {
					t.Errorf("%s: %s is charged on %s, which is idle (%q)", name, method, charge.Key, idle)
				}
			}
		}
	}
}
