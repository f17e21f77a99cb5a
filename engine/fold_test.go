package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

func TestNoRulesAdmit(t *testing.T) {
	b := newBench(t, nil)
	want(t, "unknown domain", b.ask([]string{"user", "a"}), false)
	fresh := engine.New(engine.Config{Store: memory.New(memory.Config{})})
	v := new(engine.Verdict)
	fresh.Decide(t.Context(), &descriptors.Request{Domain: "d", Descriptors: make([]descriptors.Descriptor, 2)}, v)
	want(t, "before the first rule set", v, false)
	if len(v.Statuses) != 2 {
		t.Fatalf("%d statuses before the first rule set, want 2", len(v.Statuses))
	}
}

func TestTreeChargesEveryDescriptorEvenWhenOneRefuses(t *testing.T) {
	tree := []descriptors.Node{leaf("a", "", 1), leaf("b", "", 5)}
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: tree})
	want(t, "first", b.ask([]string{"a", "1"}, []string{"b", "1"}), false)
	v := b.ask([]string{"a", "1"}, []string{"b", "1"})
	want(t, "second", v, true)
	if !v.Statuses[0].Over || v.Statuses[1].Over {
		t.Fatalf("statuses %+v: want the first over and the second not", v.Statuses)
	}
	if got := v.Statuses[1].Remaining; got != 3 {
		t.Fatalf("b has %d left, want 3: the refused request counts too", got)
	}
}

func TestTreeAllOrNothing(t *testing.T) {
	tree := []descriptors.Node{leaf("a", "", 1), leaf("b", "", 5)}
	b := newBench(t, nil, descriptors.Domain{Name: "d", Tree: tree})
	want(t, "first", b.ask([]string{"a", "1"}, []string{"b", "1"}), false)
	v := b.ask([]string{"a", "1"}, []string{"b", "1"})
	want(t, "second", v, true)
	if got := v.Statuses[1].Remaining; got != 4 {
		t.Fatalf("b has %d left, want 4: the refused request charges nothing", got)
	}
}

func TestRetryAfterIsTheLongestOfTheRefusing(t *testing.T) {
	slow, fast := bucket("slow", descriptors.ScopeUser, 1), bucket("fast", descriptors.ScopeTenant, 2)
	slow.Limits[0].Window = time.Hour
	b := newBench(t, nil, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{fast, slow}})
	who := []string{"user", "u", "tenant", "t"}
	want(t, "first", b.ask(who), false)
	v := b.ask(who)
	want(t, "second", v, true)
	if v.RetryAfter != time.Hour || v.Refusing.Rule != "slow" {
		t.Fatalf("retry after %v by %q, want 1h by slow", v.RetryAfter, v.Refusing.Rule)
	}
	if s := v.Statuses[0]; !s.Over || s.Effect.Rule != "slow" {
		t.Fatalf("status %+v: want slow reported as over", s)
	}
}

func TestRuleRetryAfterReplacesItsOwn(t *testing.T) {
	r := bucket("r", descriptors.ScopeUser, 1)
	r.Response = &descriptors.Response{RetryAfter: 7 * time.Second, Message: "wait"}
	b := newBench(t, nil, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{r}})
	b.ask([]string{"user", "u"})
	v := b.ask([]string{"user", "u"})
	if v.RetryAfter != 7*time.Second || v.Response == nil || v.Response.Message != "wait" {
		t.Fatalf("retry after %v with response %+v, want 7s and the rule's own", v.RetryAfter, v.Response)
	}
}

// TestHeadersAndMessageComeFromOneLimit: the limit that is reported is the one whose response is sent, also where a
// rule's own retry_after is longer than the other limit's wait.
func TestHeadersAndMessageComeFromOneLimit(t *testing.T) {
	slow, told := bucket("slow", descriptors.ScopeUser, 1), bucket("told", descriptors.ScopeTenant, 1)
	slow.Limits[0].Window = 2 * time.Minute
	told.Response = &descriptors.Response{RetryAfter: time.Hour}
	b := newBench(t, nil, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{slow, told}})
	b.ask([]string{"user", "u", "tenant", "t"})
	v := b.ask([]string{"user", "u", "tenant", "t"})
	if v.Refusing.Rule != "told" || v.Reported.Effect.Rule != "told" || v.Statuses[0].Effect.Rule != "told" {
		t.Fatalf("refusing %q, reported %q, status %q: want told everywhere", v.Refusing.Rule, v.Reported.Effect.Rule, v.Statuses[0].Effect.Rule)
	}
}

func TestStatusShowsTheStrictest(t *testing.T) {
	rules := []descriptors.Rule{bucket("wide", descriptors.ScopeGlobal, 100), bucket("narrow", descriptors.ScopeUser, 3)}
	b := newBench(t, nil, descriptors.Domain{Name: "d", Rules: rules})
	v := b.ask([]string{"user", "u"})
	if s := v.Statuses[0]; s.Effect == nil || s.Effect.Rule != "narrow" || s.Remaining != 2 {
		t.Fatalf("status %+v: want narrow with 2 left", s)
	}
}

func TestShadowLimitIsCountedAndNotShown(t *testing.T) {
	n := leaf("a", "", 1)
	n.Shadow = true
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{n}})
	for range 3 {
		v := b.ask([]string{"a", "1"})
		want(t, "shadow", v, false)
		if v.Statuses[0].Effect != nil || v.Statuses[0].Over {
			t.Fatalf("status %+v shows a shadow limit", v.Statuses[0])
		}
	}
	if v := b.ask([]string{"a", "1"}); v.Decisions[0].Outcome != limit.Refused {
		t.Fatalf("decision %+v: a shadow limit still decides", v.Decisions[0])
	}
}

func TestGlobalShadowMode(t *testing.T) {
	shadow := func(c *engine.Config) { c.Shadow = true }
	b := newBench(t, shadow, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("a", "", 1)}})
	b.ask([]string{"a", "1"})
	v := b.ask([]string{"a", "1"})
	want(t, "second", v, false)
	if !v.Shadowed || !v.Statuses[0].Over {
		t.Fatalf("shadowed %v, status %+v: want the refusal noted and its status left alone", v.Shadowed, v.Statuses[0])
	}
}

// TestAQuotaInShadowAlwaysHasRoom, and so the others cannot refuse.
func TestAQuotaInShadowAlwaysHasRoom(t *testing.T) {
	x, y := leaf("x", "", 1), leaf("y", "", 100)
	x.Quota, y.Quota, y.Shadow = true, true, true
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{x, y}})
	want(t, "both have room", b.ask([]string{"x", "1"}, []string{"y", "1"}), false)
	v := b.ask([]string{"x", "1"}, []string{"y", "1"})
	want(t, "y has room", v, false)
	if !v.Statuses[0].Over {
		t.Errorf("the status of x is %+v, want it over", v.Statuses[0])
	}
	want(t, "x alone", b.ask([]string{"x", "1"}), true)
}

func TestQuotaModeRefusesOnlyTogether(t *testing.T) {
	x, y := leaf("x", "", 1), leaf("y", "", 2)
	x.Quota, y.Quota = true, true
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{x, y}})
	both := func() *engine.Verdict { return b.ask([]string{"x", "1"}, []string{"y", "1"}) }
	want(t, "both have room", both(), false)
	v := both()
	want(t, "y has room", v, false)
	if !v.Statuses[0].Over {
		t.Fatalf("status %+v: a spent quota keeps OVER", v.Statuses[0])
	}
	want(t, "none has room", both(), true)
}

func TestGlobalQuotaModeWithAnUnlimitedDescriptor(t *testing.T) {
	quota := func(c *engine.Config) { c.Quota = true }
	b := newBench(t, quota, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("x", "", 1)}})
	b.ask([]string{"x", "1"})
	want(t, "alone", b.ask([]string{"x", "1"}), true)
	v := b.ask([]string{"x", "1"}, []string{"nothing", "1"})
	want(t, "with one that nothing limits", v, false)
	if !v.Statuses[0].Over {
		t.Fatalf("status %+v: want OVER reported", v.Statuses[0])
	}
}

// TestGlobalQuotaModeWithARuleThatFrees: a rule without limit does not make the tree refuse a request that it admits
// without the rule.
func TestGlobalQuotaModeWithARuleThatFrees(t *testing.T) {
	partners := descriptors.Rule{Name: "partners", Scope: descriptors.ScopeUser, HasScope: true, Priority: 100, Limits: []descriptors.Limit{{Unlimited: true}}}
	for name, rules := range map[string][]descriptors.Rule{"without": nil, "with": {partners}} {
		quota := func(c *engine.Config) { c.Quota = true }
		b := newBench(t, quota, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("api", "x", 1)}, Rules: rules})
		for range 3 {
			want(t, name+" the rule", b.ask([]string{"user", "alice"}, []string{"api", "x"}), false)
		}
		want(t, name+" the rule, the tree alone", b.ask([]string{"api", "x"}), true)
	}
}

func TestBlockRefusesOnTheFirstDescriptor(t *testing.T) {
	block := descriptors.Rule{Name: "b", Action: descriptors.Block, Priority: 100, Reason: "no", Until: noon.Add(90 * time.Second), Match: descriptors.Conditions{Users: []string{"m"}}}
	b := newBench(t, nil, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{block, bucket("r", descriptors.ScopeUser, 5)}})
	v := b.ask([]string{"x", "1"}, []string{"user", "m"})
	want(t, "blocked", v, true)
	if !v.Statuses[0].Over || v.RetryAfter != 90*time.Second || v.Refusing.Reason != "no" {
		t.Fatalf("status %+v, retry after %v, refusing %+v", v.Statuses[0], v.RetryAfter, v.Refusing)
	}
	if len(v.Decisions) != 0 {
		t.Fatalf("a blocked request was charged: %+v", v.Decisions)
	}
}

func TestAllowExempts(t *testing.T) {
	allow := descriptors.Rule{Name: "a", Action: descriptors.Allow, Priority: 100, Match: descriptors.Conditions{Users: []string{"boss"}}}
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Rules: []descriptors.Rule{allow, bucket("r", descriptors.ScopeUser, 1)}, Tree: []descriptors.Node{leaf("user", "", 1)}})
	for range 3 {
		v := b.ask([]string{"user", "boss"})
		want(t, "exempt", v, false)
		if len(v.Decisions) != 0 || v.Statuses[0].Effect != nil {
			t.Fatalf("an exempt request was charged: %+v", v.Decisions)
		}
	}
}

func TestVerdictIsSeenOnce(t *testing.T) {
	var seen []bool
	watch := func(c *engine.Config) {
		c.OnVerdict = func(_ *descriptors.Request, v *engine.Verdict) { seen = append(seen, v.Refused) }
	}
	b := newBench(t, watch, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("a", "", 1)}})
	b.ask([]string{"a", "1"})
	b.ask([]string{"a", "1"})
	if !slices.Equal(seen, []bool{false, true}) {
		t.Fatalf("OnVerdict saw %v, want [false true]", seen)
	}
}

// TestEqualDescriptorsCountInTurn: each of them shows what it left, as long as the request is admitted.
func TestEqualDescriptorsCountInTurn(t *testing.T) {
	tree := []descriptors.Node{leaf("a", "", 100), leaf("b", "", 5)}
	for _, many := range []int{2, 3, 40} {
		b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: tree})
		lists := [][]string{{"b", "1"}}
		for range many {
			lists = append(lists, []string{"a", "1"})
		}
		v := b.ask(lists...)
		if got := v.Statuses[0].Remaining; got != 4 {
			t.Errorf("%d equal: the other descriptor shows %d left, want 4", many, got)
		}
		for i := range many {
			if got, want := v.Statuses[i+1].Remaining, int64(99-i); got != want {
				t.Errorf("%d equal: number %d shows %d left, want %d", many, i, got, want)
			}
		}
	}
}

// TestEqualDescriptorsOfARefusedRequest show what each of them left, too: those of a tree stay charged.
func TestEqualDescriptorsOfARefusedRequest(t *testing.T) {
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("a", "", 2)}})
	v := b.ask([]string{"a", "1"}, []string{"a", "1"}, []string{"a", "1"})
	want(t, "three of two", v, true)
	for i, left := range []int64{1, 0, 0} {
		if s := v.Statuses[i]; s.Over != (i == 2) || s.Remaining != left {
			t.Errorf("status %d is %+v, want over %v and %d left", i, s, i == 2, left)
		}
	}
}

// TestEqualPostPaidDescriptors show no tokens while there is a debt.
func TestEqualPostPaidDescriptors(t *testing.T) {
	n := leaf("a", "", 0)
	n.PostPaid, n.Limits = true, bucket("", descriptors.ScopeUser, 1).Limits
	b := newBench(t, nil, descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{n}})
	v := b.ask([]string{"a", "1"}, []string{"a", "1"})
	want(t, "post-paid", v, false)
	for i, s := range v.Statuses {
		if s.Remaining != 0 {
			t.Errorf("status %d shows %d left, want none", i, s.Remaining)
		}
	}
}
