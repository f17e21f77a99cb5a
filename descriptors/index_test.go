package descriptors

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

var oneLimit = []Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: 1e9}}}

// pick returns at most n of the words.
func pick(r *rand.Rand, n int, words ...string) []string {
	var out []string
	for range r.IntN(n + 1) {
		out = append(out, words[r.IntN(len(words))])
	}
	return out
}

func randomRule(r *rand.Rand, i int) Rule {
	rule := Rule{Name: fmt.Sprintf("r%d", i), Scope: ScopeUser, HasScope: true, Priority: 100 + r.IntN(2),
		Limits: oneLimit}
	for _, text := range pick(r, 2, "/a", "/a/b", "/*", "/a/*", "/**", "/a/**", "/*/b") {
		rule.Match.Endpoints = append(rule.Match.Endpoints, Pattern{Text: text})
	}
	rule.Match.Methods = pick(r, 1, "GET", "post")
	rule.Match.Users = pick(r, 2, "u1", "u2", "u3")
	rule.Match.Tiers = pick(r, 1, "gold", "free")
	for _, text := range pick(r, 1, "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0") {
		rule.Match.CIDRs = append(rule.Match.CIDRs, netip.MustParsePrefix(text))
	}
	for _, text := range pick(r, 2, "x=1", "x=2", "y=1") {
		if rule.Match.Entries == nil {
			rule.Match.Entries = map[string]string{}
		}
		key, value, _ := strings.Cut(text, "=")
		rule.Match.Entries[key] = value
	}
	return rule
}

// applies reports whether a rule's conditions hold, by their definition, and by which pattern it matched best.
func applies(m *Conditions, a map[string]string) (*pattern, bool) {
	one := func(list []string, value string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool {
			return strings.EqualFold(s, value) && value != ""
		})
	}
	if !one(m.Methods, a["method"]) || !one(m.Users, a["user"]) || !one(m.Tiers, a["tier"]) {
		return nil, false
	}
	for key, value := range m.Entries {
		if a[key] != value {
			return nil, false
		}
	}
	if len(m.CIDRs) > 0 && !slices.ContainsFunc(m.CIDRs, func(p netip.Prefix) bool {
		return p.Contains(netip.MustParseAddr(a["remote_address"]))
	}) {
		return nil, false
	}
	var best *pattern
	for _, e := range m.Endpoints {
		p, _ := parsePattern(e.Text)
		if matchNaive(segmentsOf(p.text), segmentsOf(a["path"])) && (best == nil || comparePatterns(p, best) < 0) {
			best = p
		}
	}
	return best, len(m.Endpoints) == 0 || best != nil
}

// winnerNaive tries every rule.
func winnerNaive(rules []Rule, a map[string]string) string {
	name := ""
	var best *candidate
	for i := range rules {
		m := &rules[i].Match
		p, ok := applies(m, a)
		if !ok {
			continue
		}
		c := &candidate{pattern: p, rule: &compiledRule{tier: len(m.Tiers) > 0, priority: rules[i].Priority}}
		for d, given := range map[dimension]int{
			dimMethod: len(m.Methods), dimUser: len(m.Users), dimTenant: len(m.Tenants), dimNetwork: len(m.CIDRs),
			dimEntry: len(m.Entries),
		} {
			c.asks[d] = make([]int32, given)
		}
		if best == nil || compareSpecific(c, best) < 0 {
			best, name = c, rules[i].Name
		}
	}
	return name
}

// TestIndexAgainstEveryRule holds the index against trying every rule, and that no rule wins which a warning calls
// displaced.
func TestIndexAgainstEveryRule(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	reported := 0
	for range 200 / divisor {
		d := Domain{Name: "shop"}
		for i := range 20 {
			d.Rules = append(d.Rules, randomRule(r, i))
		}
		set, problems := Compile([]Domain{d}, Options{})
		if set == nil {
			t.Fatal(problems)
		}
		displaced := neverWins(problems)
		reported += len(displaced)
		var m Match
		for range 50 {
			a := map[string]string{
				"user": []string{"u1", "u2", "u4"}[r.IntN(3)], "method": []string{"GET", "POST"}[r.IntN(2)],
				"tier": []string{"", "gold", "free"}[r.IntN(3)], "x": []string{"", "1", "2"}[r.IntN(3)],
				"y":              []string{"", "1"}[r.IntN(2)],
				"path":           []string{"/", "/a", "/a/b", "/a/c", "/x/b", "/a/b/c"}[r.IntN(6)],
				"remote_address": []string{"10.1.2.3", "10.2.0.1", "192.0.2.1", "2001:db8::1"}[r.IntN(4)],
			}
			req := &Request{Domain: "shop", Descriptors: []Descriptor{{}}}
			for key, value := range a {
				req.Descriptors[0].Entries = append(req.Descriptors[0].Entries, Entry{key, value})
			}
			set.Match(req, &m)
			got := ""
			if len(m.Terms) > 0 {
				got = m.Terms[0].Effect.Rule
			}
			if want := winnerNaive(d.Rules, a); got != want {
				t.Fatalf("%v: rule %q wins, want %q", a, got, want)
			}
			if displaced[got] {
				t.Fatalf("%v: rule %q wins, and is reported to be displaced: %v", a, got, problems)
			}
		}
	}
	if reported < 20/divisor {
		t.Errorf("only %d rules are reported to be displaced", reported)
	}
}

// manyRules makes n rules of every sort, none of which is about the request of manyRequest but the last few.
func manyRules(n int) Domain {
	d := Domain{Name: "shop"}
	add := func(r Rule) {
		r.Name, r.Scope, r.HasScope, r.Limits, r.Priority = fmt.Sprintf("r%d", len(d.Rules)), ScopeUser, true, oneLimit,
			100
		d.Rules = append(d.Rules, r)
	}
	at := func(format string, i int) []Pattern { return []Pattern{{Text: fmt.Sprintf(format, i)}} }
	for i := range n - 2 {
		switch i % 8 {
		case 0:
			add(Rule{Match: Conditions{Endpoints: at("/api/v1/r%d", i)}})
		case 1:
			add(Rule{Match: Conditions{Endpoints: at("/api/*/r%d/**", i)}})
		case 2:
			add(Rule{Match: Conditions{Endpoints: at("/**/x%d", i), Methods: []string{"GET"}}})
		case 3:
			add(Rule{Match: Conditions{Users: []string{fmt.Sprintf("u%d", i)}, Methods: []string{"GET"}}})
		case 4:
			add(Rule{Match: Conditions{Tiers: []string{fmt.Sprintf("t%d", i)}}})
		case 5:
			add(Rule{
				Match: Conditions{
					CIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}),
						24)}}})
		case 6:
			add(Rule{Match: Conditions{Entries: map[string]string{"plan": fmt.Sprint(i)}, Methods: []string{"GET"}}})
		case 7:
			add(Rule{Match: Conditions{Endpoints: at("/a%d*/y", i), Tenants: []string{"acme"}}})
		}
	}
	add(Rule{})
	add(Rule{Match: Conditions{Endpoints: []Pattern{{Text: "/api/v1/orders"}}}})
	return d
}

func manyRequest() *Request {
	return &Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []Entry{
		{"user", "alice"}, {"path", "/api/v1/orders"}, {"method", "GET"}, {"remote_address", "192.0.2.1"},
		{"tenant", "acme"}, {"tier", "gold"},
	}}}}
}

func compileMany(t testing.TB, n int) *Set {
	set, problems := Compile([]Domain{manyRules(n)}, Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

// TestMatchingLooksAtFewRules: among 1,000 rules no more are looked at than among 10.
func TestMatchingLooksAtFewRules(t *testing.T) {
	looked := map[int]int{}
	for _, n := range []int{10, 100, 1000} {
		var m Match
		compileMany(t, n).Match(manyRequest(), &m)
		if len(m.Terms) != 1 || m.Terms[0].Effect.Rule != fmt.Sprintf("r%d", n-1) {
			t.Fatalf("among %d rules: %v", n, describe(&m))
		}
		looked[n] = m.scratch.looked
	}
	if looked[1000] > looked[10]+1 || looked[1000] > 4 {
		t.Errorf("candidates looked at among 10, 100, 1000 rules: %v", looked)
	}
}

// TestMatchAllocates at most twice, the key included.
func TestMatchAllocates(t *testing.T) {
	for _, n := range []int{10, 1000} {
		set, req := compileMany(t, n), manyRequest()
		var m Match
		if allocs := testing.AllocsPerRun(200, func() { set.Match(req, &m) }); allocs > 2 {
			t.Errorf("%v allocations among %d rules, want at most 2", allocs, n)
		}
	}
	s := script{domain: Domain{Name: "shop", ChargeDenied: true}}
	s.configure(t, strings.Fields("node a > b=x* : 10/minute"))
	set, req := s.compile(t), parseRequest(t, strings.Fields("a=1 b=x2"))
	var m Match
	if allocs := testing.AllocsPerRun(200, func() { set.Match(req, &m) }); allocs > 1 {
		t.Errorf("%v allocations in a tree, want at most 1", allocs)
	}
}

func benchmarkMatch(b *testing.B, n int) {
	set, req := compileMany(b, n), manyRequest()
	var m Match
	b.ReportAllocs()
	for b.Loop() {
		set.Match(req, &m)
	}
}

func BenchmarkMatch10(b *testing.B)   { benchmarkMatch(b, 10) }
func BenchmarkMatch100(b *testing.B)  { benchmarkMatch(b, 100) }
func BenchmarkMatch1000(b *testing.B) { benchmarkMatch(b, 1000) }
