package telemetry

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// admission is a verdict that admits on one limit, and an observer that knows it.
func admission() (*Observer, *descriptors.Request, *engine.Verdict) {
	domain := descriptors.Domain{Name: "shop", Tree: []descriptors.Node{{Key: "user", Limits: []descriptors.Limit{
		{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 10, Window: time.Minute}},
	}}}}
	set, _ := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{})
	o := New(Config{}).Observer(nil)
	o.Use(set)
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
	ctx := context.Background()
	allocs := testing.AllocsPerRun(100, func() { o.Verdict(ctx, req, v) })
	if allocs > 0 {
		t.Errorf("counting a verdict makes %v allocations, want none", allocs)
	}
}

// TestShadowModeCountsRulesInShadow: in quota mode a descriptor that nothing limits keeps the others from refusing,
// which is not shadow mode.
func TestShadowModeCountsRulesInShadow(t *testing.T) {
	limits := []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: time.Hour}}}
	for _, shadow := range []bool{false, true} {
		domain := descriptors.Domain{Name: "shop", ChargeDenied: true,
			Tree: []descriptors.Node{{Key: "user", Limits: limits, Shadow: shadow}}}
		set, _ := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{})
		m := New(Config{})
		o := m.Observer(nil)
		o.Use(set)
		e := engine.New(engine.Config{Store: memory.New(memory.Config{}), Quota: true,
			Observers: []engine.Observer{o.Verdict}})
		defer e.Close()
		e.Use(set)
		req := &descriptors.Request{Domain: "shop"}
		for _, key := range []string{"user", "other"} {
			req.Descriptors = append(req.Descriptors,
				descriptors.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: "a"}}})
		}
		var v engine.Verdict
		for range 3 {
			e.Decide(t.Context(), req, &v)
		}
		got := counts(m.Series("shop", []string{"user"}))
		want := map[bool]int64{true: 2}[shadow]
		if v.Refused || got["over_limit"] != 2 || got["shadow_mode"] != want {
			t.Errorf("rule in shadow %v: refused %v, counted %v; want admitted, 2 over the limit and %d in shadow mode",
				shadow, v.Refused, got, want)
		}
	}
}

func BenchmarkVerdict(b *testing.B) {
	o, req, v := admission()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		o.Verdict(ctx, req, v)
	}
}

func BenchmarkDegradedVerdict(b *testing.B) {
	o, req, v := admission()
	ctx := context.Background()
	v.Degraded, v.Decisions[0].Reason = "timeout", "timeout"
	b.ReportAllocs()
	for b.Loop() {
		o.Verdict(ctx, req, v)
	}
}

func TestWhatReadinessSaysOfABreaker(t *testing.T) {
	for _, step := range []struct {
		reason string
		state  breaker.State
		want   string
	}{
		{"", breaker.Closed, ""},
		{"dial", breaker.Closed, "dial"},
		{"", breaker.Open, "breaker open"},
		{"dial", breaker.Open, "dial, breaker open"},
		{"", breaker.HalfOpen, ""}, // Redis answers; the next request will show
		{"dial", breaker.HalfOpen, "dial, breaker half-open"},
	} {
		if got := withBreaker(step.reason, step.state); got != step.want {
			t.Errorf("%q and a breaker that is %s: %q, want %q", step.reason, step.state, got, step.want)
		}
	}
}
