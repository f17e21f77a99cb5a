package descriptors

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/limit"
)

// TestFailurePoliciesAreInherited holds that a rule or node without a policy has its domain's, and that an explicit
// local stays.
func TestFailurePoliciesAreInherited(t *testing.T) {
	limits := []Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: time.Minute}, Unit: Minute,
		Multiplier: 1}}
	rule := func(name string, own Failure) Rule {
		return Rule{Name: name, Scope: ScopeUser, HasScope: true, Limits: limits, OnFailure: own}
	}
	account := []Account{{Name: "a", Limits: limits}}
	for _, policy := range []Failure{FailLocal, FailOpen, FailClosed} {
		set, problems := Compile([]Domain{{
			Name: "shop", OnFailure: policy, Users: account, Tenants: account, Keys: account,
			Rules: []Rule{rule("none", FailLocal), rule("open", FailOpen), rule("closed", FailClosed),
				rule("local", FailStayLocal)},
			Tree: []Node{
				{Key: "none", Limits: limits, Nodes: []Node{{Key: "below", Limits: limits}}},
				{Key: "local", Limits: limits, OnFailure: FailStayLocal},
				{Key: "open", Limits: limits, OnFailure: FailOpen},
			},
		}}, Options{})
		if set == nil {
			t.Fatalf("does not compile: %v", problems)
		}
		got := map[string]Failure{}
		for _, e := range set.Effects() {
			name := e.Rule
			if e.Tree {
				name = "tree " + e.Rule
			}
			got[name] = e.OnFailure
		}
		got["override"] = set.Domain("shop").overrides.effect(Override{Count: 1, Unit: Minute, Multiplier: 1},
			time.Minute).OnFailure
		want := map[string]Failure{
			"user": policy, "tenant": policy, "key": policy, "none": policy, "open": FailOpen, "closed": FailClosed,
			"local":     FailLocal,
			"tree none": policy, "tree none.below": policy, "tree local": FailLocal, "tree open": FailOpen,
			"override": policy,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in a domain with policy %d (-want +got):\n%s", policy, diff)
		}
	}
}
