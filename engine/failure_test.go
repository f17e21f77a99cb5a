package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store"
)

// lost is a Counter that never decides, as a store that is away.
type lost struct{ panics bool }

func (l lost) Spend(_ context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if l.panics {
		panic("lost")
	}
	for i := range charges {
		decisions[i] = limit.Decision{Reason: "timeout"}
	}
}
func (l lost) Usage(_ context.Context, _ []limit.Charge, _ []limit.Decision) {}
func (l lost) Reset(context.Context, []string) error                         { return nil }

// failing is a bench whose store is away and whose fallback is the memory store.
func failing(t *testing.T, panics bool, domains ...descriptors.Domain) *bench {
	return newBench(t, func(c *engine.Config) { c.Fallback, c.Store = c.Store, lost{panics} }, domains...)
}

func policy(p descriptors.Failure, count int64) descriptors.Domain {
	r := bucket("r", descriptors.ScopeUser, count)
	r.OnFailure = p
	return descriptors.Domain{Name: "d", Rules: []descriptors.Rule{r}}
}

func TestFailOpenAdmitsAndShowsNoNumbers(t *testing.T) {
	b := failing(t, false, policy(descriptors.FailOpen, 1))
	for range 3 {
		v := b.ask([]string{"user", "u"})
		want(t, "open", v, false)
		if v.Degraded != "timeout" || v.Statuses[0].Effect != nil {
			t.Fatalf("degraded %q, status %+v: want timeout and no numbers that were not counted", v.Degraded, v.Statuses[0])
		}
	}
}

func TestFailClosedRefusesForASecond(t *testing.T) {
	b := failing(t, false, policy(descriptors.FailClosed, 10))
	v := b.ask([]string{"user", "u"})
	want(t, "closed", v, true)
	if v.RetryAfter != time.Second || v.Degraded != "timeout" || !v.Statuses[0].Over {
		t.Fatalf("retry after %v, degraded %q, status %+v", v.RetryAfter, v.Degraded, v.Statuses[0])
	}
}

func TestFailLocalCountsInMemory(t *testing.T) {
	b := failing(t, false, policy(descriptors.FailLocal, 2))
	for i, refused := range []bool{false, false, true} {
		v := b.ask([]string{"user", "u"})
		want(t, "local", v, refused)
		if v.Degraded != "timeout" {
			t.Fatalf("request %d: degraded %q, want timeout", i, v.Degraded)
		}
	}
}

func TestClosedKeepsLocalUncharged(t *testing.T) {
	closed, local := bucket("closed", descriptors.ScopeTenant, 5), bucket("local", descriptors.ScopeUser, 5)
	closed.OnFailure = descriptors.FailClosed
	b := failing(t, false, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{closed, local}})
	for range 3 {
		v := b.ask([]string{"user", "u"}, []string{"tenant", "t"})
		want(t, "closed", v, true)
		if got := v.Statuses[0].Remaining; got != 5 {
			t.Fatalf("the local limit has %d left, want 5: a refused request charges no rule", got)
		}
	}
}

func TestPostPaidChargeIsNeverRefused(t *testing.T) {
	d := policy(descriptors.FailClosed, 5)
	d.Rules[0].PostPaid = true
	b := failing(t, false, d)
	hits := descriptors.Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: "u"}}, Hits: 9, HitsGiven: true}
	want(t, "post-paid", b.decide(&descriptors.Request{Domain: "d", Descriptors: []descriptors.Descriptor{hits}}), false)
}

func TestPanicOfTheStoreIsDecidedByPolicy(t *testing.T) {
	for _, c := range []struct {
		policy  descriptors.Failure
		refused bool
	}{{descriptors.FailOpen, false}, {descriptors.FailClosed, true}, {descriptors.FailLocal, false}} {
		b := failing(t, true, policy(c.policy, 5))
		v := b.ask([]string{"user", "u"})
		want(t, "panic", v, c.refused)
		if v.Degraded != "panic" {
			t.Fatalf("degraded %q, want panic", v.Degraded)
		}
	}
}

// TestAPanicAfterMatchingIsDecidedByThePolicies: here of the function that counts the sidecars.
func TestAPanicAfterMatchingIsDecidedByThePolicies(t *testing.T) {
	for policy, refused := range map[descriptors.Failure]bool{descriptors.FailClosed: true, descriptors.FailOpen: false, descriptors.FailLocal: false} {
		set, problems := descriptors.Compile([]descriptors.Domain{pair(policy)}, descriptors.Options{})
		if set == nil {
			t.Fatalf("the test's own rules do not compile: %v", problems)
		}
		memory, panics := store.NewMemory(store.MemoryConfig{}), 0
		e := engine.New(engine.Config{
			Store: memory, Fallback: memory, OnPanic: func(any) { panics++ },
			Live: func(string) int { panic("of a test") },
		})
		e.Use(set)
		v := new(engine.Verdict)
		e.Decide(t.Context(), request("joe", "acme", 1), v)
		if v.Refused != refused || v.Degraded != "panic" || panics != 1 || refused && v.RetryAfter != time.Second {
			t.Errorf("policy %v: refused %v, degraded %q, %d panics, retry after %v", policy, v.Refused, v.Degraded, panics, v.RetryAfter)
		}
		e.Close()
	}
}

// TestAVerdictStandsThoughSomebodyPanicsAboutIt: who looks on has no say.
func TestAVerdictStandsThoughSomebodyPanicsAboutIt(t *testing.T) {
	set, problems := descriptors.Compile([]descriptors.Domain{pair(descriptors.FailOpen)}, descriptors.Options{})
	if set == nil {
		t.Fatalf("the test's own rules do not compile: %v", problems)
	}
	panics := 0
	e := engine.New(engine.Config{
		Store: store.NewMemory(store.MemoryConfig{}), OnPanic: func(any) { panics++ },
		OnVerdict: func(*descriptors.Request, *engine.Verdict) { panic("of a test") },
	})
	defer e.Close()
	e.Use(set)
	v := new(engine.Verdict)
	for i := range 6 {
		e.Decide(t.Context(), request("joe", "acme", 1), v)
		want(t, "of 4", v, i >= 4)
	}
	if panics != 6 {
		t.Errorf("%d panics were told of, want 6", panics)
	}
}
