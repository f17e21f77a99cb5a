package descriptors_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// classes are those of the charges of a request with these entries and an override.
func classes(t *testing.T, d descriptors.Domain, entries ...descriptors.Entry) []uint32 {
	t.Helper()
	set, problems := descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
	if set == nil {
		t.Fatalf("the test's own rules do not compile: %v", problems)
	}
	req := descriptors.Request{Domain: d.Name}
	for _, e := range entries {
		req.Descriptors = append(req.Descriptors, descriptors.Descriptor{Entries: []descriptors.Entry{e}})
	}
	req.Descriptors = append(req.Descriptors, descriptors.Descriptor{
		Entries: entries[:1], Override: &descriptors.Override{Count: 1, Unit: descriptors.Minute, Multiplier: 1},
	})
	var m descriptors.Match
	set.Match(&req, &m)
	var all []uint32
	for _, c := range m.Charges {
		all = append(all, c.Class)
	}
	return all
}

// TestEachLimitHasAClass: every limit of a request has a class of its own, which does not depend on who asks and
// outlasts a reload.
func TestEachLimitHasAClass(t *testing.T) {
	per := func(window time.Duration) descriptors.Limit {
		return descriptors.Limit{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 5, Window: window}}
	}
	domain := descriptors.Domain{
		Name: "shop",
		Rules: []descriptors.Rule{
			{Name: "two", Scope: descriptors.ScopeUser, HasScope: true, Limits: []descriptors.Limit{per(time.Minute),
				per(24 * time.Hour)}},
			{Name: "ip", Scope: descriptors.ScopeIP, HasScope: true, Limits: []descriptors.Limit{per(time.Minute)}},
		},
		Tree: []descriptors.Node{{Key: "user", Limits: []descriptors.Limit{per(time.Minute)}}},
	}
	ask := func(user, address string) []uint32 {
		return classes(t, domain, descriptors.Entry{Key: "user", Value: user}, descriptors.Entry{Key: "remote_address",
			Value: address})
	}
	alice, bob := ask("alice", "10.0.0.1"), ask("bob", "10.0.0.2")
	if len(alice) != 5 || len(bob) != 5 {
		t.Fatalf("%d and %d charges, want 5: two limits of a rule, another rule, a leaf, an override", len(alice),
			len(bob))
	}
	seen := map[uint32]bool{}
	for i, class := range alice {
		if class != bob[i] {
			t.Errorf("charge %d: class %d for one client and %d for another, after a reload", i, class, bob[i])
		}
		if class == 0 || seen[class] {
			t.Errorf("charge %d: class %d is none, or that of another limit", i, class)
		}
		seen[class] = true
	}
}
