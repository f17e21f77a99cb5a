package descriptors

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// TestWhoseReadsTheKeyBack asks each counter of a request whose it is.
func TestWhoseReadsTheKeyBack(t *testing.T) {
	one := []Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: 1e9}}}
	rule := func(name string, scope Scope) Rule {
		return Rule{Name: name, Scope: scope, HasScope: true, Limits: one}
	}
	domain := Domain{Name: "sh|op", Rules: []Rule{
		rule("all", ScopeGlobal), rule("both", ScopeUser|ScopeEndpoint), rule("client", ScopeClient),
		rule("ip", ScopeIP),
	}, Tree: []Node{{Key: "a/b", Nodes: []Node{{Key: "c", Limits: one}}}}}
	user := Request{Domain: "sh|op", Subject: &Subject{Path: "/a b/{c}", Client: identity.Client{User: "al:i|ce%",
		Address: netip.MustParseAddr("2001:db8::1")}}}
	guest := Request{Domain: "sh|op",
		Subject: &Subject{Path: "/", Client: identity.Client{Address: netip.MustParseAddr("192.0.2.7")}}}
	tree := Request{Domain: "sh|op", Descriptors: []Descriptor{{Entries: []Entry{{"a/b", "x|y"}, {"c", "z~ip"}}}}}
	for _, coLocate := range []bool{false, true} {
		domain.CoLocate = coLocate
		set, problems := Compile([]Domain{domain}, Options{KeyPrefix: "p:"})
		if set == nil {
			t.Fatal(problems)
		}
		for _, c := range []struct {
			req  *Request
			rule string
			want []Entry
		}{
			{&user, "all", []Entry{}},
			{&user, "both", []Entry{{"user", "al:i|ce%"}, {"endpoint", "/a b/{c}"}}},
			{&user, "client", []Entry{{"client", "al:i|ce%"}}},
			{&guest, "client", []Entry{{"ip", "192.0.2.7"}}},
			{&user, "ip", []Entry{{"ip", "2001:db8::/64"}}},
			{&tree, "a/b.c", []Entry{{"a/b", "x|y"}, {"c", "z~ip"}}},
		} {
			var m Match
			set.Match(c.req, &m)
			found := false
			for i, term := range m.Terms {
				if term.Effect.Rule != c.rule {
					continue
				}
				found = true
				if diff := cmp.Diff(c.want, term.Effect.Whose(m.Charges[i].Key)); diff != "" {
					t.Errorf("co-located %v: %s: key %s (-want +got):\n%s", coLocate, c.rule, m.Charges[i].Key, diff)
				}
			}
			if !found {
				t.Errorf("rule %s does not count", c.rule)
			}
		}
	}
}

func TestHitsOfADescriptor(t *testing.T) {
	req := &Request{Hits: 4, Descriptors: []Descriptor{
		{}, {HitsGiven: true, Hits: 0}, {HitsGiven: true, Hits: 1 << 63},
		{HitsGiven: true, Hits: 7, NegativeHits: true},
	}}
	for i, want := range []int64{4, 0, limit.MaxCost, 0} {
		if got := req.Spends(i); got != want {
			t.Errorf("hits of descriptor %d = %d, want %d", i, got, want)
		}
	}
	if got := (&Request{Descriptors: make([]Descriptor, 1)}).Spends(0); got != 1 {
		t.Errorf("hits of a request that gives none = %d, want 1", got)
	}
}
