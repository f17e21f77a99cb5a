package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// tree is a domain with descriptors that are charged also when denied.
func tree(nodes ...descriptors.Node) descriptors.Domain {
	return descriptors.Domain{Name: "d", ChargeDenied: true, Tree: nodes}
}

// ruled is a domain with rules.
func ruled(rules ...descriptors.Rule) descriptors.Domain {
	return descriptors.Domain{Name: "d", Rules: rules}
}

func TestNoRulesAdmit(t *testing.T) {
	b := newBench(t, nil)
	want(t, "unknown domain", b.ask([]string{"user", "a"}), false)
	b.Use(nil)
	want(t, "before the first rule set", b.ask(nil, nil), false)
}

func TestTreesChargeARefusedRequestUnlessAllOrNothing(t *testing.T) {
	for chargeDenied, left := range map[bool]int64{true: 3, false: 4} {
		d := tree(leaf("a", "", 1), leaf("b", "", 5))
		d.ChargeDenied = chargeDenied
		b := newBench(t, nil, d)
		want(t, "first", b.ask([]string{"a", "1"}, []string{"b", "1"}), false)
		v := b.ask([]string{"a", "1"}, []string{"b", "1"})
		want(t, "second", v, true)
		if s := v.Statuses; !s[0].Over || s[1].Over || s[1].Remaining != left {
			t.Errorf("charge_denied %v: statuses %+v: want the first over, and %d left of the second", chargeDenied, s,
				left)
		}
	}
}

// TestARefusalIsThatOfTheLongestWait: the limit that is reported is the one whose response is sent, also where a rule's
// own retry_after is longer than the other limit's wait.
func TestARefusalIsThatOfTheLongestWait(t *testing.T) {
	slow, other := bucket("slow", descriptors.ScopeUser, 1), bucket("other", descriptors.ScopeTenant, 1)
	slow.Limits[0].Window = 2 * time.Minute
	for own, want := range map[time.Duration]string{0: "2m0s slow slow slow", time.Hour: "1h0m0s other other other"} {
		other.Response = &descriptors.Response{RetryAfter: own}
		b := newBench(t, nil, ruled(slow, other))
		b.decide(request("u", "t", 1))
		v := b.decide(request("u", "t", 1))
		got := fmt.Sprint(v.RetryAfter, " ", v.Refusing.Rule, " ", v.Reported.Effect.Rule, " ",
			v.Statuses[0].Effect.Rule)
		if got != want || (v.Response != nil) != (own > 0) {
			t.Errorf("retry after, refusing, reported and status: %s with response %+v, want %s", got, v.Response, want)
		}
	}
}

func TestStatusShowsTheStrictest(t *testing.T) {
	b := newBench(t, nil, ruled(bucket("wide", descriptors.ScopeGlobal, 100), bucket("narrow", descriptors.ScopeUser,
		3)))
	if s := b.ask([]string{"user", "u"}).Statuses[0]; s.Effect == nil || s.Effect.Rule != "narrow" || s.Remaining != 2 {
		t.Fatalf("status %+v: want narrow with 2 left", s)
	}
}

func TestShadowLimitIsCountedAndNotShown(t *testing.T) {
	n := leaf("a", "", 1)
	n.Shadow = true
	b := newBench(t, nil, tree(n))
	for i := range 3 {
		v := b.ask([]string{"a", "1"})
		want(t, "shadow", v, false)
		if v.Statuses[0].Effect != nil || v.Statuses[0].Over || (v.Decisions[0].Outcome == limit.Refused) != (i > 0) {
			t.Fatalf("request %d: status %+v shows a shadow limit, or it decides %+v", i, v.Statuses[0], v.Decisions[0])
		}
	}
}

func TestGlobalShadowMode(t *testing.T) {
	b := newBench(t, func(c *engine.Config) { c.Shadow = true }, tree(leaf("a", "", 1)))
	b.ask([]string{"a", "1"})
	v := b.ask([]string{"a", "1"})
	want(t, "second", v, false)
	if !v.Shadowed || !v.Statuses[0].Over {
		t.Fatalf("shadowed %v, status %+v: want the refusal noted and its status left alone", v.Shadowed, v.Statuses[0])
	}
}

// TestQuotasRefuseOnlyTogether, and never beside one that always has room.
func TestQuotasRefuseOnlyTogether(t *testing.T) {
	x, y := []string{"x", "1"}, []string{"y", "1"}
	xy := [][]string{x, y}
	quota := func(key string, count int64, shadow bool) descriptors.Node {
		n := leaf(key, "", count)
		n.Quota, n.Shadow = true, shadow
		return n
	}
	free := bucket("partners", descriptors.ScopeUser, 1)
	free.Limits = []descriptors.Limit{{Unlimited: true}}
	withFree := tree(leaf("x", "", 1))
	withFree.Rules = []descriptors.Rule{free}
	for name, c := range map[string]struct {
		global bool
		domain descriptors.Domain
		lists  [][]string
		refuse []bool
	}{
		"two quotas": {false, tree(quota("x", 1, false), quota("y", 2, false)), xy,
			[]bool{false, false, true}},
		"one in shadow": {false, tree(quota("x", 1, false), quota("y", 9, true)), xy,
			[]bool{false, false, false}},
		"beside one in shadow": {false, tree(quota("x", 1, false), quota("y", 9, true)), xy[:1],
			[]bool{false, true}},
		"all": {true, tree(leaf("x", "", 1)), [][]string{x}, []bool{false, true}},
		"all, one without limit": {true, tree(leaf("x", "", 1)), [][]string{x, {"z", "1"}},
			[]bool{false, false, false}},
		"all, a rule that frees":   {true, withFree, [][]string{x, {"user", "a"}}, []bool{false, false, false}},
		"all, and no user to free": {true, withFree, [][]string{x}, []bool{false, true}},
	} {
		b := newBench(t, func(cfg *engine.Config) { cfg.Quota = c.global }, c.domain)
		for i, refused := range c.refuse {
			v := b.ask(c.lists...)
			if v.Refused != refused || v.Statuses[0].Over != (i > 0) {
				t.Errorf("%s, request %d: refused %v, status %+v; want %v, and x over when it is spent", name, i,
					v.Refused,
					v.Statuses[0], refused)
			}
		}
	}
}

func TestBlockRefusesOnTheFirstDescriptor(t *testing.T) {
	block := descriptors.Rule{Name: "b", Action: descriptors.Block, Reason: "no", Until: noon.Add(90 * time.Second)}
	block.Match.Users = []string{"m"}
	b := newBench(t, nil, ruled(block, bucket("r", descriptors.ScopeUser, 5)))
	v := b.ask([]string{"x", "1"}, []string{"user", "m"})
	want(t, "blocked", v, true)
	if !v.Statuses[0].Over || v.RetryAfter != 90*time.Second || v.Refusing.Reason != "no" || len(v.Decisions) != 0 {
		t.Fatalf("status %+v, retry after %v, charged %+v", v.Statuses[0], v.RetryAfter, v.Decisions)
	}
}

func TestAllowExempts(t *testing.T) {
	allow := descriptors.Rule{Name: "a", Action: descriptors.Allow,
		Match: descriptors.Conditions{Users: []string{"boss"}}}
	d := tree(leaf("user", "", 1))
	d.Rules = []descriptors.Rule{allow, bucket("r", descriptors.ScopeUser, 1)}
	b := newBench(t, nil, d)
	for range 3 {
		v := b.ask([]string{"user", "boss"})
		want(t, "exempt", v, false)
		if len(v.Decisions) != 0 || v.Statuses[0].Effect != nil {
			t.Fatalf("an exempt request was charged: %+v", v.Decisions)
		}
	}
}
