package descriptors

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// defaulted is a domain in which some requests have limits, and all others the default.
func defaulted(t *testing.T) *Set {
	t.Helper()
	bucket := []Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 5, Burst: 5, Window: time.Minute}}}
	on := func(path string) Conditions { return Conditions{Endpoints: []Pattern{{Text: path}}} }
	set, found := Compile([]Domain{{
		Name: "shop",
		Rules: []Rule{
			{Name: "search", Scope: ScopeUser, HasScope: true, Match: on("/search"), Limits: bucket},
			{Name: "trial", HasScope: true, Match: on("/trial"), Limits: bucket, Action: LogOnly},
			{Name: "free", HasScope: true, Match: on("/free"), Limits: []Limit{{Unlimited: true}}},
			{Name: "health", Match: on("/healthz"), Action: Allow},
			{Name: "abuse", Match: on("/abuse"), Action: Block},
		},
		Tree:     []Node{{Key: "route", Value: "login", Limits: bucket}},
		Defaults: &Rule{Name: DefaultRule, Scope: ScopeIP, HasScope: true, Limits: bucket},
	}}, Options{})
	if set == nil {
		t.Fatal(found)
	}
	return set
}

// TestDefaults: what nothing else limits counts against the default, over both doors.
func TestDefaults(t *testing.T) {
	set := defaulted(t)
	var m Match
	counted := func(req *Request) string {
		set.Match(req, &m)
		var names []string
		for _, term := range m.Terms {
			names = append(names, term.Effect.Rule)
		}
		return strings.Join(names, " ")
	}
	subject := func(path, user string) *Request {
		return &Request{Domain: "shop", Subject: &Subject{Path: path, Method: "GET",
			Client: identity.Client{User: user, Address: netip.MustParseAddr("192.0.2.1")}}}
	}
	over := func(entries ...Entry) *Request {
		return &Request{Domain: "shop", Descriptors: []Descriptor{{Entries: entries}}}
	}
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{subject("/", "ann"), "default"}, {subject("/search", "ann"), "search"}, {subject("/search", ""), "default"},
		{subject("/trial", ""), "trial default"}, {subject("/free", ""), ""}, {subject("/healthz", ""), ""},
		{subject("/abuse", ""), ""}, {subject("/a%2fb/../c", ""), "default"},
		{over(Entry{"remote_address", "192.0.2.1"}), "default"}, {over(Entry{"route", "login"}), "route_login"},
		{over(Entry{"route", "other"}), ""}, // without an address there is nothing to count by
	} {
		if got := counted(c.req); got != c.want {
			t.Errorf("%+v %+v is counted by %q, want %q", c.req.Subject, c.req.Descriptors, got, c.want)
		}
	}
	counted(subject("/", ""))
	if key := m.Charges[0].Key; !strings.Contains(key, ":ip:default") {
		t.Errorf("the key of the default is %q", key)
	}
	perf := subject("/", "ann")
	if n := testing.AllocsPerRun(100, func() { set.Match(perf, &m) }); n > 2 {
		t.Errorf("a request of the default takes %v allocations, want at most 2", n)
	}
}

// TestDefaultsAreExplained: the default is among what was considered, and won only where it counts.
func TestDefaultsAreExplained(t *testing.T) {
	set := defaulted(t)
	for path, won := range map[string]bool{"/": true, "/search": false} {
		req := &Request{Domain: "shop", Subject: &Subject{Path: path, Client: identity.Client{User: "ann",
			Address: netip.MustParseAddr("192.0.2.1")}}}
		var m Match
		set.Match(req, &m)
		all := set.Domain("shop").Explain(req, &m).Considered
		at := slices.IndexFunc(all, func(c Considered) bool { return c.Name == DefaultRule })
		if at < 0 || all[at].Won != won || !won && all[at].BeatenBy != "another limit" {
			t.Errorf("%s: %+v", path, all)
		}
	}
}

// TestDefaultsThatCannotBe: by endpoint a client would have as many counters as it likes, and a name is there once.
func TestDefaultsThatCannotBe(t *testing.T) {
	bucket := []Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 5, Burst: 5, Window: time.Minute}}}
	r := Rule{Name: DefaultRule, Scope: ScopeIP | ScopeEndpoint, HasScope: true, Limits: bucket}
	wants(t, problems(t, func(d *Domain) { d.Defaults = &r }), "error: defaults cannot count by endpoint")
	wants(t, problems(t, func(d *Domain) {
		d.Defaults = &Rule{Name: DefaultRule, Scope: ScopeIP, HasScope: true, Limits: bucket}
		d.Rules = []Rule{*d.Defaults}
	}), `error: duplicate rule name "default"`)
}
