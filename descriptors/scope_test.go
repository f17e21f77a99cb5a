package descriptors

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEffectsSayWhatTheyCountBy(t *testing.T) {
	domain := Domain{
		Name: "shop",
		Rules: []Rule{
			{Name: "both", Scope: ScopeTenant | ScopeUser, HasScope: true, Limits: oneLimit},
			{Name: "all", Scope: ScopeGlobal, HasScope: true, Limits: oneLimit},
			{Name: "out", Action: Block, Match: Conditions{Users: []string{"mallory"}}},
		},
		Tenants: []Account{{Name: "acme", Limits: oneLimit}},
		Tree:    []Node{{Key: "path", Limits: oneLimit}},
	}
	set, problems := Compile([]Domain{domain}, Options{})
	if set == nil {
		t.Fatalf("the domain does not compile: %v", problems)
	}
	got := map[string]string{}
	for _, e := range set.Effects() {
		got[e.Rule] = e.Scope
	}
	want := map[string]string{"both": "tenant+user", "all": "global", "out": "", "tenant": "tenant",
		"path": ScopeDescriptor}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scopes by rule (-want +got):\n%s", diff)
	}
}
