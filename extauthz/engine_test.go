package extauthz

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/must"
)

// onMemory is the real engine with a limit per address, one for all, and a block.
func onMemory(tb testing.TB, count int64) *engine.Engine {
	tb.Helper()
	bucket := func(count int64) []descriptors.Limit {
		return []descriptors.Limit{{Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: time.Hour,
			Burst: count}}}
	}
	set, problems := descriptors.Compile([]descriptors.Domain{{Name: "shop", Rules: []descriptors.Rule{
		{Name: "per-address", Scope: descriptors.ScopeIP, HasScope: true, Priority: 100, Limits: bucket(count),
			Cost: 2},
		{Name: "everyone", Scope: descriptors.ScopeGlobal, HasScope: true, Priority: 100,
			Limits: bucket(1_000_000_000)},
		{Name: "iron", Priority: 100, Action: descriptors.Block,
			Match: descriptors.Conditions{Entries: map[string]string{"plan": "iron"}}},
	}}}, descriptors.Options{})
	if set == nil {
		tb.Fatalf("compile: %v", problems)
	}
	e := engine.New(engine.Config{Store: memory.New(memory.Config{})})
	e.Use(set)
	return e
}

func TestTheRealEngineDecides(t *testing.T) {
	s := New(Config{Engine: onMemory(t, 3)})
	send := func(address, plan string) string {
		source := sourceOf(message(1, message(2, []byte(address))))
		out := must.Get(s.door.Answer(t.Context(), attributes(source, httpOf(message(4, []byte("/"))),
			message(10, pair("domain", "shop")), message(10, pair("plan", plan))), nil))(t)
		return printed(answerOf(t, out))
	}
	for i, c := range []struct{ address, plan, want string }{
		{"192.0.2.1", "gold", "x-ratelimit-remaining: 1 "},
		{"192.0.2.1", "gold", "denied 429\nretry-after: 1200\nx-ratelimit-limit: 3\nx-ratelimit-remaining: 1\n" +
			"x-ratelimit-reset: 2400\nx-ratelimit-cost: 2\n"},
		{"192.0.2.2", "gold", "ok\nx-ratelimit-limit: 3 "},
		{"192.0.2.2", "iron", "code 7\ndenied 403\n"},
	} {
		if got := send(c.address, c.plan); !strings.Contains(got, c.want) {
			t.Errorf("request %d: want %q in\n%s", i, c.want, got)
		}
	}
}

func TestADecisionOfTheRealEngineAllocatesLittle(t *testing.T) {
	s := New(Config{Engine: onMemory(t, 1_000_000_000)})
	wire := wireOf(t, typical())
	var out []byte
	allocs := testing.AllocsPerRun(100, func() { out, _ = s.door.Answer(t.Context(), wire, out[:0]) })
	if allocs > 20 {
		t.Errorf("%v allocations from the message to the answer, at most 20", allocs)
	}
	t.Logf("%v allocations", allocs)
}

func BenchmarkDecision(b *testing.B) {
	s := New(Config{Engine: onMemory(b, 1_000_000_000)})
	wire := wireOf(b, typical())
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out, _ = s.door.Answer(b.Context(), wire, out[:0])
	}
}
