package rules

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

const full = "testdata/full.yaml"

// anywhere leaves positions out of a comparison.
var anywhere = cmp.Options{
	cmp.Comparer(func(a, b descriptors.Pos) bool { return true }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() }),
}

func TestEveryKeyIsDecoded(t *testing.T) {
	got, problems := Decode(full, readFile(t, full))
	if len(problems) > 0 {
		t.Fatalf("problems:\n%s", FormatProblems(problems))
	}
	berlin := must.Get(time.LoadLocation("Europe/Berlin"))(t)
	expected := descriptors.Domain{
		Name:       "cinema",
		CoLocate:   true,
		Attributes: map[string]string{"x_theatre": "tenant", "client": "user"},
		Costs: []descriptors.Cost{
			{Match: descriptors.Conditions{Methods: []string{"POST"}, Endpoints: patterns("/book")}, Cost: 3},
			{Match: descriptors.Conditions{Endpoints: patterns("/posters/**")}, Cost: 12},
		},
		CostHeader: "x-cinema-cost",
		Rules:      fullRules(),
		OnFailure:  descriptors.FailOpen,
		Timezone:   berlin,
		Defaults: &descriptors.Rule{Name: "default", Scope: descriptors.ScopeClient, HasScope: true, Priority: 100,
			OnFailure: descriptors.FailClosed, Limits: []descriptors.Limit{bucket(300, time.Minute)}},
		Penalty: &descriptors.Penalty{Threshold: 3, DetectionWindow: time.Hour, CoolDown: time.Minute,
			Multipliers: []int{1, 2, 4, 8}},
		Users: []descriptors.Account{
			{Name: "alice", Tier: "gold", Limits: []descriptors.Limit{bucket(500, time.Hour),
				bucket(4000, 24*time.Hour)}, Burst: 20},
			{Name: "12", Tier: "staff"},
		},
		Tenants: []descriptors.Account{
			{Name: "odeon", Limits: []descriptors.Limit{named("monthly", bucket(70, 720*time.Hour))}}},
		Keys: []descriptors.Account{{Name: "till", Limits: []descriptors.Limit{bucket(50, time.Second)},
			Burst: 80}},
		Identity:   fullIdentity(t),
		IPv6Prefix: 56,
		Headers:    descriptors.HeadersBoth,
		ResetUnix:  true,
		Tree:       fullTree(),
	}
	if diff := cmp.Diff(expected, got, anywhere); diff != "" {
		t.Errorf("domain (-want +got):\n%s", diff)
	}
}

func fullRules() []descriptors.Rule {
	user, ip, tenant := descriptors.ScopeUser, descriptors.ScopeIP, descriptors.ScopeTenant
	seats := named("seats-minute", bucket(6, time.Minute))
	seats.Burst = 9
	rules := []descriptors.Rule{
		{Name: "visitors", Scope: user, HasScope: true, Limits: []descriptors.Limit{bucket(60, time.Minute)}},
		{Name: "seats", Scope: user | descriptors.ScopeEndpoint, HasScope: true, Limits: []descriptors.Limit{seats},
			Match: descriptors.Conditions{Endpoints: patterns("/book", "/v*/book"), Methods: []string{"POST", "put"}}},
		{Name: "theatre", Scope: tenant, HasScope: true, OnFailure: descriptors.FailOpen,
			Limits: []descriptors.Limit{bucket(2000, time.Second), window(limit.SlidingWindow, 5_000_000,
				168*time.Hour)}},
		{Name: "students", Scope: user, HasScope: true,
			Limits: []descriptors.Limit{window(limit.FixedWindow, 40, 90*time.Minute)},
			Match:  descriptors.Conditions{Tiers: []string{"student"}, Tenants: []string{"odeon", "007"}},
			Response: &descriptors.Response{Status: 503, Message: "Come back later.", RetryAfter: 90 * time.Second,
				Headers: []descriptors.Header{{Name: "x-more", Value: "https://cinema.example/more"},
					{Name: "x-n", Value: "5"}}}},
		{Name: "lobby", Scope: ip, HasScope: true, Limits: []descriptors.Limit{bucket(4, time.Second)},
			Action:   descriptors.Throttle,
			MaxDelay: 250 * time.Millisecond, Match: descriptors.Conditions{CIDRs: []netip.Prefix{
				netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"),
				netip.MustParsePrefix("10.0.0.0/8")}}},
		{Name: "doors", Scope: ip, HasScope: true,
			Limits: []descriptors.Limit{window(limit.SlidingLog, 5, time.Minute)},
			Match:  descriptors.Conditions{Endpoints: patterns("/login")}, Penalty: &descriptors.Penalty{Threshold: 4,
				DetectionWindow: 5 * time.Minute, CoolDown: 30 * time.Second, Multipliers: []int{1, 3, 9},
				DryRun: true}},
		{Name: "probes", Match: descriptors.Conditions{Endpoints: patterns("/livez")}, Action: descriptors.Allow},
		{Name: "pirates", Match: descriptors.Conditions{Users: []string{"blackbeard"}}, Action: descriptors.Block,
			Reason: "Ask at the counter.", Until: time.Date(2031, 5, 6, 5, 8, 9, 0, time.UTC)},
		{Name: "later", Scope: user, HasScope: true, Match: descriptors.Conditions{Methods: []string{"POST"}},
			Limits: []descriptors.Limit{bucket(1, 250*time.Millisecond)}, Disabled: true},
		{Name: "watch", HasScope: true, Limits: []descriptors.Limit{bucket(9000, time.Second)},
			Action: descriptors.LogOnly, OnFailure: descriptors.FailClosed},
		{Name: "crew", Scope: user, HasScope: true, Match: descriptors.Conditions{Tiers: []string{"crew"}},
			Limits: []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket}, Unlimited: true}}},
		{Name: "tokens", Scope: tenant, HasScope: true,
			Match:  descriptors.Conditions{Entries: map[string]string{"model": "large", "paid": "true"}},
			Limits: []descriptors.Limit{bucket(100_000, time.Minute)}, PostPaid: true, Reserve: 500, Cost: 2,
			OnFailure: descriptors.FailStayLocal},
		{Name: "guests", Scope: descriptors.ScopeClient, HasScope: true,
			Match:  descriptors.Conditions{Authenticated: new(bool)},
			Limits: []descriptors.Limit{bucket(60, time.Minute)}},
		{Name: "per-key", Scope: descriptors.ScopeAPIKey | descriptors.ScopeTier, HasScope: true,
			Limits: []descriptors.Limit{bucket(50, time.Second)}},
		{Name: "billed", Scope: tenant, HasScope: true, Limits: []descriptors.Limit{
			calendar(descriptors.CalendarDay, 1000, 24*time.Hour), calendar(descriptors.CalendarMonth, 20_000,
				30*24*time.Hour)}},
	}
	for i := range rules {
		rules[i].Priority = 100
	}
	rules[8].Priority = -5
	return rules
}

func fullTree() []descriptors.Node {
	screens := named("screens", window(limit.SlidingWindow, 1000, 6*time.Hour))
	screens.Unit, screens.Multiplier = descriptors.Hour, 6
	rows := window(limit.FixedWindow, 16, 90*time.Second)
	rows.Replaces = []descriptors.Replaced{{Name: "screens"}}
	perSecond := window(limit.FixedWindow, 3, time.Second)
	perSecond.Unit, perSecond.Multiplier = descriptors.Second, 1
	perDay := bucket(50, 24*time.Hour)
	perDay.Unit, perDay.Multiplier, perDay.Burst = descriptors.Day, 1, 80
	tokens := bucket(1000, time.Minute)
	tokens.Unit, tokens.Multiplier = descriptors.Minute, 1
	forgotten := window(limit.FixedWindow, 0, 720*time.Hour)
	forgotten.Unit, forgotten.Multiplier, forgotten.CountUnset = descriptors.Month, 1, true
	return []descriptors.Node{
		{Key: "film", Nodes: []descriptors.Node{
			{Key: "screen", Value: "7", Limits: []descriptors.Limit{screens}, Shadow: true, DetailedMetric: true,
				Metadata: map[string]any{
					"owner": map[string]any{"team": "screens", "level": 2.0}, "tags": []any{"a", 1.5, nil, true}}},
			{Key: "row", Value: "a*", Limits: []descriptors.Limit{rows}, ShareThreshold: true, ValueToMetric: true},
		}},
		{Key: "free", Value: "false", Limits: []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow},
			Unlimited: true}}},
		{Key: "snacks", Quota: true, OnFailure: descriptors.FailClosed,
			Response: &descriptors.Response{Message: "No more snacks."},
			Limits:   []descriptors.Limit{perSecond, perDay}},
		{Key: "llm_tokens", PostPaid: true, Reserve: 50, Limits: []descriptors.Limit{tokens}},
		{Key: "billed", Limits: []descriptors.Limit{calendar(descriptors.CalendarDay, 7, 24*time.Hour)}},
		{Key: "forgotten", Limits: []descriptors.Limit{forgotten}},
	}
}

func bucket(count int64, per time.Duration) descriptors.Limit {
	return descriptors.Limit{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: per, Burst: count}}
}

func window(algorithm limit.Algorithm, count int64, per time.Duration) descriptors.Limit {
	return descriptors.Limit{Limit: limit.Limit{Algorithm: algorithm, Count: count, Window: per}}
}

func calendar(unit descriptors.CalendarUnit, count int64, length time.Duration) descriptors.Limit {
	l := window(limit.FixedWindow, count, length)
	l.CalendarUnit = unit
	return l
}

func named(name string, l descriptors.Limit) descriptors.Limit {
	l.Name = name
	return l
}

func patterns(texts ...string) (patterns []descriptors.Pattern) {
	for _, text := range texts {
		patterns = append(patterns, descriptors.Pattern{Text: text})
	}
	return patterns
}

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return text
}

func TestPositionsAreThoseOfTheText(t *testing.T) {
	d, _ := Decode("a.yaml", []byte("domain: shop\nrules:\n  - name: a\n    scope: user\n    limit: 1/1s\nusers:\n"+
		"  bob: { limits: [1/1s] }\ndescriptors:\n  - key: k\n    rate_limit:\n      unit: second\n"))
	got := []descriptors.Pos{d.Pos, d.Rules[0].Pos, d.Rules[0].Limits[0].Pos, d.Users[0].Pos, d.Users[0].Limits[0].Pos,
		d.Tree[0].Pos, d.Tree[0].Limits[0].Pos}
	expected := []descriptors.Pos{{File: "a.yaml", Line: 1, Column: 9}, {File: "a.yaml", Line: 3, Column: 5},
		{File: "a.yaml", Line: 5, Column: 12},
		{File: "a.yaml", Line: 7, Column: 3}, {File: "a.yaml", Line: 7, Column: 19},
		{File: "a.yaml", Line: 9, Column: 5}, {File: "a.yaml", Line: 11, Column: 7}}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

// TestReferenceValues holds that values of the reference server's files are text exactly as written.
func TestReferenceValues(t *testing.T) {
	for written, expected := range map[string]string{
		"404": "404", "010": "010", "0x1F": "0x1F", "1_000": "1_000", "true": "true", "Yes": "Yes", "off": "off",
		"2024-01-01": "2024-01-01",
		`"1.10"`:     "1.10", `'a b'`: "a b", "": "", "~": "", `""`: "", "/a/*": "/a/*", "-5": "-5",
		"12345678901234567890": "12345678901234567890",
		`!!str 1.5`:            "1.5", "a\u00e9": "a\u00e9",
	} {
		d, problems := Decode("a.yaml", []byte("domain: d\ndescriptors:\n  - key: k\n    value: "+written+"\n"))
		if len(problems) > 0 {
			t.Errorf("value: %s: %s", written, FormatProblems(problems))
			continue
		}
		if d.Tree[0].Value != expected {
			t.Errorf("value: %s is %q, want %q", written, d.Tree[0].Value, expected)
		}
	}
}

// TestReferenceNothing holds that the reference server's keys may be left empty.
func TestReferenceNothing(t *testing.T) {
	text := "domain: d\ndescriptors:\n  - key: k\n    value:\n    descriptors:\n    shadow_mode:\n" +
		"    quota_mode: ~\n    metadata:\n    detailed_metric: null\n" +
		"  - key: l\n    rate_limit: { unit: Week, requests_per_unit: , name: , replaces: , unlimited: }\n"
	d, problems := Decode("a.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(FormatProblems(problems))
	}
	if l := d.Tree[1].Limits[0]; !l.CountUnset || l.Unit != descriptors.Week || l.Window != 168*time.Hour {
		t.Errorf("limit is %+v, want an unset count per week", l)
	}
}

// TestSectionsMayBeEmpty holds that a section whose items are all commented out is not an error.
func TestSectionsMayBeEmpty(t *testing.T) {
	_, problems := Decode("a.yaml", []byte("domain: d\nattributes:\ncosts:\nrules:\n#  - name: a\nusers:\ntenants:\n"+
		"identity:\ndescriptors:\n"))
	if len(problems) > 0 {
		t.Error(FormatProblems(problems))
	}
}

func TestLinesMayEndAsOnWindows(t *testing.T) {
	d, problems := Decode("a.yaml", []byte("domain: d\r\nrules:\r\n  - name: a\r\n    scope: user\r\n"+
		"    limit: 5/1s\r\n"))
	if len(problems) > 0 || len(d.Rules) != 1 || d.Rules[0].Limits[0].Count != 5 {
		t.Errorf("got %+v, %s", d, FormatProblems(problems))
	}
}

func TestDefaults(t *testing.T) {
	d, problems := Decode("a.yaml", []byte("\ufeffdomain: d\nrules:\n  - { name: a, scope: global, limit: 0/1s }\n"))
	if len(problems) > 0 {
		t.Fatal(FormatProblems(problems))
	}
	if !d.ChargeDenied {
		t.Error("charge_denied is false, want true")
	}
	if d.CoLocate {
		t.Error("co_locate is true, want false")
	}
	if d.Rules[0].Priority != 100 {
		t.Errorf("priority is %d, want 100", d.Rules[0].Priority)
	}
}

func TestAliasesAndMergeKeys(t *testing.T) {
	text := "domain: d\ndescriptors:\n  - key: a\n    rate_limit: &base { unit: second, requests_per_unit: 5 }\n" +
		"  - key: b\n    rate_limit: *base\n  - key: c\n    rate_limit: { <<: *base, requests_per_unit: 7 }\n" +
		"  - key: e\n    rate_limit: { <<: [*base, { name: x, unit: day }] }\n"
	d, problems := Decode("a.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(FormatProblems(problems))
	}
	var got []int64
	for _, n := range d.Tree {
		got = append(got, n.Limits[0].Count)
	}
	if !slices.Equal(got, []int64{5, 5, 7, 5}) {
		t.Errorf("counts are %v, want 5 5 7 5", got)
	}
	if l := d.Tree[3].Limits[0]; l.Name != "x" || l.Unit != descriptors.Second {
		t.Errorf("merged limit is %+v, want the name of the second map and the unit of the first", l)
	}
}
