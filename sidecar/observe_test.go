package sidecar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/telemetry"
)

const manyKinds = `
domain: shop
rules:
  - {name: out, match: {users: [mallory]}, action: block}
  - {name: in, match: {users: [boss]}, action: allow}
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: free
    rate_limit: {unlimited: true}
  - key: path
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 2}
`

// sendJSON posts one descriptor with a key and a value to a domain.
func sendJSON(t *testing.T, s *running, domain, key, value, more string) {
	t.Helper()
	post(t, s.Addresses().HTTP, fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":%q,"value":%q}]%s}]}`, domain, key, value, more))
}

func TestEveryRequestIsCounted(t *testing.T) {
	s := begin(t, manyKinds)
	sendJSON(t, s, "shop", "user", "alice", "")
	sendJSON(t, s, "shop", "user", "alice", `,"hitsAddend":"3"`)
	sendJSON(t, s, "shop", "user", "alice", `,"hitsAddend":"0"`)
	sendJSON(t, s, "shop", "user", "mallory", "")
	sendJSON(t, s, "shop", "user", "boss", "")
	sendJSON(t, s, "shop", "free", "x", `,"hitsAddend":"5"`)
	sendJSON(t, s, "shop", "path", "/a", "")
	sendJSON(t, s, "shop", "nobody", "x", "")
	sendJSON(t, s, "nowhere", "user", "x", "")
	sendJSON(t, s, "shop", "user", "dave", `,"limit":{"requestsPerUnit":1}`)
	_, page := fetch(t, s.Addresses().Debug, "/stats")
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 5`,
		`ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"} 2`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"} 2`,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="free"} 5`,
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="path_/a"} 1`,
		`ratelimit_service_rate_limit_domain_not_found 1`,
		`spillway_decisions_total{domain="shop",outcome="blocked",rule="out",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="exempt",rule="in",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="no_limit",rule="",scope=""} 1`,
		`spillway_decisions_total{domain="",outcome="unknown_domain",rule="",scope=""} 1`,
		`spillway_decisions_total{domain="shop",outcome="refused",rule="user",scope="descriptor"} 2`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="user",scope="descriptor"} 2`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="path",scope="descriptor"} 1`,
		`spillway_decisions_total{domain="shop",outcome="allowed",rule="free",scope="descriptor"} 1`,
		`spillway_bad_overrides_total 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("/stats lacks %q:\n%s", want, page)
		}
	}
}

// admission is a verdict that admits on one limit, and an observer that knows it.
func admission() (*observer, *descriptors.Request, *engine.Verdict) {
	domain := descriptors.Domain{Name: "shop", Tree: []descriptors.Node{{Key: "user", Limits: []descriptors.Limit{
		{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 10, Window: time.Minute}},
	}}}}
	set, _ := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{})
	o := newObserver(telemetry.New(telemetry.Config{}), nil)
	o.use(set)
	var effect *descriptors.Effect
	for _, e := range set.Effects() {
		effect = e
	}
	charge := limit.Charge{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 10}, Cost: 1}
	v := &engine.Verdict{Decisions: []limit.Decision{{Outcome: limit.Allowed, Remaining: 3, Charged: 1}}}
	v.Match.Known, v.Match.Domain = true, set.Domain("shop")
	v.Match.Charges, v.Match.Terms = []limit.Charge{charge}, []descriptors.Term{{Effect: effect, Metric: effect.Metric}}
	v.Reported.Effect = effect
	return o, &descriptors.Request{Domain: "shop"}, v
}

func TestAVerdictIsCountedWithoutAllocation(t *testing.T) {
	o, req, v := admission()
	allocs := testing.AllocsPerRun(100, func() { o.verdict(req, v) })
	if allocs > 0 {
		t.Errorf("counting a verdict makes %v allocations, want none", allocs)
	}
}

func BenchmarkVerdict(b *testing.B) {
	o, req, v := admission()
	b.ReportAllocs()
	for b.Loop() {
		o.verdict(req, v)
	}
}

func BenchmarkDegradedVerdict(b *testing.B) {
	o, req, v := admission()
	v.Degraded, v.Decisions[0].Reason = "timeout", "timeout"
	b.ReportAllocs()
	for b.Loop() {
		o.verdict(req, v)
	}
}

func TestHitsOfADescriptor(t *testing.T) {
	req := &descriptors.Request{Hits: 4, Descriptors: []descriptors.Descriptor{
		{}, {HitsGiven: true, Hits: 0}, {HitsGiven: true, Hits: 1 << 63}, {HitsGiven: true, Hits: 7, NegativeHits: true},
	}}
	for i, want := range []int64{4, 0, limit.MaxCost, 0} {
		if got := hits(req, i); got != want {
			t.Errorf("hits of descriptor %d = %d, want %d", i, got, want)
		}
	}
	if got := hits(&descriptors.Request{Descriptors: make([]descriptors.Descriptor, 1)}, 0); got != 1 {
		t.Errorf("hits of a request that gives none = %d, want 1", got)
	}
}
