package descriptors

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func dumped(t *testing.T, lines ...string) *Set {
	t.Helper()
	s := script{domain: Domain{Name: "shop", ChargeDenied: true}}
	for _, line := range lines {
		s.configure(t, strings.Fields(line))
	}
	return s.compile(t)
}

func TestDump(t *testing.T) {
	set := dumped(t,
		"set ipv6_prefix=56",
		"attribute x_account=tenant",
		"cost 5 endpoints=/search methods=POST",
		"node z : 20/minute",
		"node a=b > c=x* : 5/hour*6 algorithm=sliding_window shadow",
		"node q : 1/second 2/day name=daily quota",
		"node u : unlimited",
		"node free=yes : ",
		"rule per-user scope=user limit=100/1m",
		"rule quick scope=ip limit=3/250ms cost=2 priority=7",
		"rule free scope=user tiers=partner limit=unlimited",
		"rule health action=allow endpoints=/healthz",
		"rule bad action=block users=mallory reason=No until=2099-01-01T00:00:00Z",
		"rule later scope=user+endpoint limit=1/1s,slow:2/1m/sliding_log action=log_only cidrs=10.0.0.0/8 "+
			"entries=x:1 penalty=3/10m/1m disabled",
		"user alice limits=5/1h,50/24h tier=pro burst=9",
	)
	var out strings.Builder
	set.Dump(&out)
	want := strings.ReplaceAll(`shop: charge_denied: true, attributes: {"x_account": "tenant"}, ipv6_prefix: 56
shop.a_b.c_x*: unit=HOUR requests_per_unit=5, shadow_mode: true, quota_mode: false, unit_multiplier: 6,
  algorithm: sliding_window
shop.cost.1: match: {endpoints: ["/search"], methods: ["POST"]}, cost: 5
shop.free_yes: no limit
shop.q.1: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: true
shop.q.daily: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: true, name: "daily"
shop.rule.bad: action: block, priority: 100, match: {users: ["mallory"]}, reason: "No", until: 2099-01-01T00:00:00Z
shop.rule.free: unlimited, shadow_mode: false, quota_mode: false, scope: user, action: reject, priority: 100,
  match: {tiers: ["partner"]}
shop.rule.health: action: allow, priority: 100, match: {endpoints: ["/healthz"]}
shop.rule.later.1: unit=SECOND requests_per_unit=1, shadow_mode: true, quota_mode: false,
  algorithm: token_bucket, burst: 1, scope: user+endpoint, action: log_only, priority: 100,
  match: {cidrs: [10.0.0.0/8], entries: {"x": "1"}}, disabled: true, penalty: {threshold: 3,
  detection_window: 10m0s, cool_down: 1m0s}
shop.rule.later.slow: unit=MINUTE requests_per_unit=2, shadow_mode: true, quota_mode: false,
  algorithm: sliding_log, name: "slow", scope: user+endpoint, action: log_only, priority: 100,
  match: {cidrs: [10.0.0.0/8], entries: {"x": "1"}}, disabled: true, penalty: {threshold: 3,
  detection_window: 10m0s, cool_down: 1m0s}
shop.rule.per-user: unit=MINUTE requests_per_unit=100, shadow_mode: false, quota_mode: false,
  algorithm: token_bucket, burst: 100, scope: user, action: reject, priority: 100
shop.rule.quick: unit=SECOND requests_per_unit=3, shadow_mode: false, quota_mode: false,
  algorithm: token_bucket, burst: 3, per: 250ms, scope: ip, action: reject, priority: 7, cost: 2
shop.rule.user.1: unit=HOUR requests_per_unit=5, shadow_mode: false, quota_mode: false,
  algorithm: token_bucket, burst: 9, user: "alice"
shop.rule.user.2: unit=DAY requests_per_unit=50, shadow_mode: false, quota_mode: false,
  algorithm: token_bucket, burst: 9, user: "alice"
shop.u: unlimited, shadow_mode: false, quota_mode: false
shop.user "alice": tier: "pro"
shop.z: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false
`, ",\n  ", ", ") // a line of the text may have two here
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEffects: names, metrics and metadata of what a set can do.
func TestEffects(t *testing.T) {
	set := dumped(t,
		"node a=b > c : 1/minute name=tree detailed",
		"rule u scope=user limit=1/1s,fast:2/1s",
		"rule b action=block users=x reason=no until=2099-01-01T00:00:00Z",
		"tenant acme limits=1/1h",
	)
	var got []string
	for domain, e := range set.Effects() {
		got = append(got, strings.Join([]string{domain, e.Name, e.Rule, strings.Join(e.Metric, "/")}, " "))
	}
	want := []string{
		"shop tenant tenant rule/tenant", "shop u u rule/u/1", "shop fast u rule/u/fast", "shop b b rule/b",
		"shop tree tree a_b/c",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop"}, set.Domains()); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
}

// TestMetadataStaysWithRuntimeMetrics: the metrics that depend on the request take nothing away from the effect.
func TestMetadataStaysWithRuntimeMetrics(t *testing.T) {
	metadata := map[string]any{"team": "core"}
	set, found := Compile([]Domain{{Name: "shop", Tree: []Node{
		{Key: "d", DetailedMetric: true, Metadata: metadata, Limits: oneLimit},
		{Key: "v", ValueToMetric: true, Metadata: metadata, Limits: oneLimit},
	}}}, Options{})
	if set == nil {
		t.Fatal(found)
	}
	var m Match
	set.Match(&Request{Domain: "shop", Descriptors: []Descriptor{{Entries: []Entry{{"d", "1"}}},
		{Entries: []Entry{{"v", "1"}}}}}, &m)
	for _, term := range m.Terms {
		if term.Effect.Metadata["team"] != "core" {
			t.Errorf("%s: metadata %v", term.Effect.Rule, term.Effect.Metadata)
		}
	}
}

// TestZeroSetKnowsNothing: what serves before the first rules are loaded.
func TestZeroSetKnowsNothing(t *testing.T) {
	var m Match
	new(Set).Match(&Request{Domain: "shop", Descriptors: []Descriptor{{}}}, &m)
	if m.Known || len(m.Charges) > 0 {
		t.Errorf("matched %v", describe(&m))
	}
}

// TestMatchIsReused: nothing of a request shows in the next, and huge ones leave no huge memory.
func TestMatchIsReused(t *testing.T) {
	set := dumped(t, "node a : 1/minute", "rule u scope=user limit=1/1s", "rule b action=block users=x",
		"rule o action=allow users=y",
		"node llm : 5/minute algorithm=token_bucket post_paid")
	var used Match
	for _, text := range []string{"user=x", "user=y", "a=1 !1/nothing", "llm=1 ; user=z",
		strings.Repeat("a=1 ; ", 3000) + "user=u", "user=u path=/q", "none"} {
		req := parseRequest(t, strings.Fields(text))
		var fresh Match
		set.Match(req, &fresh)
		set.Match(req, &used)
		if diff := cmp.Diff(describe(&fresh), describe(&used)); diff != "" {
			t.Errorf("%.20s: fresh and used differ (-fresh +used):\n%s", text, diff)
		}
	}
	if cap(used.Charges) > maxKept {
		t.Errorf("room for %d charges stays", cap(used.Charges))
	}
}

// TestManyGoroutines share one set, with a secret and with overrides; the race detector watches.
func TestManyGoroutines(t *testing.T) {
	set := dumped(t, "set secret=s", "node a : 1/minute", "rule u scope=user limit=1/1s")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			var m Match
			for i := range 500 {
				o := Override{Count: uint32(i), Unit: Minute, Multiplier: 1}
				set.Match(&Request{Domain: "shop", Descriptors: []Descriptor{
					{Entries: []Entry{{"a", "1"}, {"user", "u"}}, Override: &o}, {Entries: []Entry{{"a", "1"}}},
				}}, &m)
				if len(m.Charges) != 3 {
					t.Errorf("%v", describe(&m))
					return
				}
			}
		})
	}
	wait.Wait()
}

// TestOverridesAreBounded: a mesh that sends a new number each time fills no memory.
func TestOverridesAreBounded(t *testing.T) {
	var o overrides
	for i := range maxOverrides + 100 {
		if e := o.effect(Override{Count: uint32(i), Unit: Minute, Multiplier: 1}, 60e9); e.Limit.Count != int64(i) {
			t.Fatalf("count %d, want %d", e.Limit.Count, i)
		}
	}
	if len(o.known) != maxOverrides {
		t.Errorf("%d effects are kept, want %d", len(o.known), maxOverrides)
	}
}
