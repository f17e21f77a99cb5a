package descriptors

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

// manyAccounts makes a domain of n users, n tenants and n API keys with a tier and limits of their own, and a rule that
// names n users.
func manyAccounts(n int) Domain {
	d := Domain{Name: "shop", CostHeader: "x-cost"}
	rule := Rule{Name: "named", Scope: ScopeUser, HasScope: true, Limits: oneLimit,
		Match: Conditions{Methods: []string{"DELETE"}}}
	for i := range n {
		d.Users = append(d.Users, Account{Name: fmt.Sprintf("user-%d", i), Tier: "gold", Limits: oneLimit})
		d.Tenants = append(d.Tenants, Account{Name: fmt.Sprintf("tenant-%d", i), Limits: oneLimit})
		d.Keys = append(d.Keys, Account{Name: fmt.Sprintf("key-%d", i), Limits: oneLimit})
		rule.Match.Users = append(rule.Match.Users, fmt.Sprintf("user-%d", i))
	}
	plain := Rule{Name: "plain", Scope: ScopeUser, HasScope: true, Limits: oneLimit}
	d.Rules = []Rule{rule, plain, {Name: "per-ip", Scope: ScopeIP, HasScope: true, Limits: oneLimit}}
	return d
}

// accountRequests are about the last user of all, one with a key, and one that is unknown.
func accountRequests(n int) []*Request {
	var all []*Request
	for _, client := range []identity.Client{
		{User: fmt.Sprintf("user-%d", n-1), Tenant: fmt.Sprintf("tenant-%d", n-1)},
		{User: "bot", Key: fmt.Sprintf("key-%d", n-1)},
		{User: "nobody"},
	} {
		client.Address, client.Authenticated = netip.MustParseAddr("198.51.100.1"), true
		all = append(all, &Request{
			Domain: "shop", Evidence: &identity.Evidence{Headers: []identity.Header{{Name: "x-cost", Value: "2"}}},
			Subject: &Subject{Client: client, Path: "/api/v1/orders?page=2", Method: "GET", Host: "shop.example"},
		})
	}
	return all
}

func compileAccounts(t testing.TB, n int) *Set {
	t.Helper()
	set, problems := Compile([]Domain{manyAccounts(n)}, Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

// TestLookupsAreFlat: with 100,000 users, tenants and keys, no more rules are looked at and no more memory is taken
// than with 10.
func TestLookupsAreFlat(t *testing.T) {
	const few, many = 10, 100_000
	want := [][]string{{"tenant", "user", "per-ip"}, {"key", "per-ip"}, {"plain", "per-ip"}}
	looked, allocs := map[int][]int{}, map[int][]float64{}
	for _, n := range []int{few, many} {
		set := compileAccounts(t, n)
		for i, req := range accountRequests(n) {
			var m Match
			set.Match(req, &m)
			var got []string
			for _, term := range m.Terms {
				got = append(got, term.Effect.Rule)
			}
			if strings.Join(got, " ") != strings.Join(want[i], " ") {
				t.Errorf("among %d: request %d meets %v, want %v", n, i, got, want[i])
			}
			looked[n] = append(looked[n], m.scratch.looked)
			allocs[n] = append(allocs[n], testing.AllocsPerRun(100, func() { set.Match(req, &m) }))
		}
	}
	for i := range want {
		if looked[many][i] != looked[few][i] || looked[many][i] > 4 {
			t.Errorf("request %d: %d rules looked at among %d, %d among %d", i, looked[few][i], few, looked[many][i],
				many)
		}
		if allocs[many][i] != allocs[few][i] || allocs[many][i] > 5 {
			t.Errorf("request %d: %v allocations among %d, %v among %d", i, allocs[few][i], few, allocs[many][i], many)
		}
	}
}

// TestFactsForgetTheLastRequest: what held for one request does not hold for the next, also under another set.
func TestFactsForgetTheLastRequest(t *testing.T) {
	large, small := compileAccounts(t, 200), compileAccounts(t, 3)
	var m Match
	match := func(set *Set, user string) string {
		req := &Request{Domain: "shop", Subject: &Subject{Client: identity.Client{User: user}, Method: "DELETE"}}
		set.Match(req, &m)
		return m.Terms[0].Effect.Rule
	}
	for _, c := range []struct {
		set        *Set
		user, want string
	}{
		{large, "user-199", "named"}, {large, "nobody", "plain"}, {small, "nobody", "plain"},
		{small, "user-2", "named"},
		{large, "nobody", "plain"}, {large, "user-150", "named"}, {small, "user-150", "plain"},
		{large, "nobody", "plain"},
	} {
		if got := match(c.set, c.user); got != c.want {
			t.Fatalf("%s meets %s, want %s", c.user, got, c.want)
		}
	}
}

// TestSubjectLeavesNoTrace: a request over RLS after one of ext_authz, and the other way round, in the same memory.
func TestSubjectLeavesNoTrace(t *testing.T) {
	s := script{domain: Domain{Name: "shop", ChargeDenied: true}}
	for _, line := range []string{"rule u scope=user limit=1/1s", "rule g scope=global limit=1/1s",
		"node llm : 1/minute algorithm=token_bucket post_paid"} {
		s.configure(t, strings.Fields(line))
	}
	set := s.compile(t)
	var used Match
	for _, words := range []string{"> user=alice", "authz> user=alice ip=10.0.0.1", "> llm=1 user=x", "> llm=1",
		"authz> user=bob", "> llm=1 ; user=alice", "authz> ip=10.0.0.1"} {
		var fresh Match
		want := runRequest(t, set, &fresh, strings.Fields(words))
		got := runRequest(t, set, &used, strings.Fields(words))
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q in used memory, %q in fresh one", words, got, want)
		}
	}
}

// TestDescriptorsBesideASubject are not read.
func TestDescriptorsBesideASubject(t *testing.T) {
	for _, lines := range [][]string{{"node user : 5/minute"},
		{"node user : 5/minute", "rule u scope=user limit=1/1s"}} {
		s := script{domain: Domain{Name: "shop", ChargeDenied: true}}
		for _, line := range lines {
			s.configure(t, strings.Fields(line))
		}
		set := s.compile(t)
		bare, beside := parseSubject(t, []string{"user=alice"}), parseSubject(t, []string{"user=alice"})
		beside.Descriptors = parseRequest(t, []string{"user=bob", "@9", ";", "user=eve"}).Descriptors
		var want, got Match
		set.Match(bare, &want)
		set.Match(beside, &got)
		if a, b := strings.Join(describe(&got), "\n"), strings.Join(describe(&want), "\n"); a != b {
			t.Errorf("%q: %q with descriptors, %q without", lines, a, b)
		}
	}
}

// TestCompileHandsOutResolvers: each domain gets one, the zero configuration where it has none, and refused sets get
// none.
func TestCompileHandsOutResolvers(t *testing.T) {
	made := map[string]*identity.Config{}
	opt := Options{Identity: func(domain string, cfg *identity.Config) *identity.Resolver {
		made[domain] = cfg
		return identity.New(*cfg, nil, identity.Options{})
	}}
	cfg := &identity.Config{Order: []identity.EvidenceKind{identity.MTLS}}
	if set, _ := Compile([]Domain{{Name: "a"}, {Name: ""}}, opt); set != nil || len(made) > 0 {
		t.Fatalf("resolvers %v of a refused set", made)
	}
	set, _ := Compile([]Domain{{Name: "a", Identity: cfg}, {Name: "b"}}, opt)
	if made["a"] != cfg || made["b"] == nil || len(made["b"].Order) > 0 {
		t.Errorf("configurations %v", made)
	}
	if set.Domain("a").Identity == nil || set.Domain("b").Identity == nil || set.Domain("c") != nil {
		t.Error("a domain lacks its resolver, or a missing domain has one")
	}
	var none *Set
	if none.Domain("a") != nil {
		t.Error("no set has a domain")
	}
}

func benchmarkAccounts(b *testing.B, n int) {
	set, requests := compileAccounts(b, n), accountRequests(n)
	var m Match
	b.ReportAllocs()
	for b.Loop() {
		set.Match(requests[0], &m)
	}
}

func BenchmarkSubject10Users(b *testing.B)     { benchmarkAccounts(b, 10) }
func BenchmarkSubject100000Users(b *testing.B) { benchmarkAccounts(b, 100_000) }
