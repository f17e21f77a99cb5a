package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// TestEachPolicy: open admits and shows no numbers that were not counted, closed refuses for a second, local counts.
func TestEachPolicy(t *testing.T) {
	for p, refused := range map[descriptors.Failure][3]bool{
		descriptors.FailOpen: {}, descriptors.FailClosed: {true, true, true}, descriptors.FailLocal: {false, false,
			true},
	} {
		b, _ := failing(t, nil, policy(p, 2))
		for i := range refused {
			v := b.ask([]string{"user", "u"})
			want(t, "without the store", v, refused[i])
			shown := v.Statuses[0].Effect != nil
			if v.Degraded != "dial" || v.Statuses[0].Over != refused[i] || shown != (p != descriptors.FailOpen) {
				t.Errorf("policy %v: degraded %q, status %+v", p, v.Degraded, v.Statuses[0])
			}
			if p == descriptors.FailClosed && v.RetryAfter != time.Second {
				t.Errorf("closed: retry after %v, want a second", v.RetryAfter)
			}
		}
	}
	b, _ := failing(t, func(c *engine.Config) { c.Share = nil }, policy(descriptors.FailLocal, 1))
	for range 3 {
		want(t, "local without a share", b.ask([]string{"user", "u"}), false)
	}
}

func TestClosedKeepsLocalUncharged(t *testing.T) {
	closed, local := bucket("closed", descriptors.ScopeTenant, 5), bucket("local", descriptors.ScopeUser, 5)
	closed.OnFailure = descriptors.FailClosed
	b, _ := failing(t, nil, descriptors.Domain{Name: "d", Rules: []descriptors.Rule{closed, local}})
	for range 3 {
		v := b.ask([]string{"user", "u"}, []string{"tenant", "t"})
		want(t, "closed", v, true)
		if got := v.Statuses[0].Remaining; got != 5 {
			t.Fatalf("the local limit has %d left, want 5: a refused request charges no rule", got)
		}
	}
}

// TestKnownRefusalsHoldUnderEveryPolicy: what the store left refused stays refused, and the share is not charged.
func TestKnownRefusalsHoldUnderEveryPolicy(t *testing.T) {
	for _, p := range []descriptors.Failure{descriptors.FailOpen, descriptors.FailLocal, descriptors.FailClosed} {
		inSidecars(t, 1, pair(p), func(t *testing.T, f *sidecars) {
			f.set(func() { f.away, f.known = everything, of("acme") })
			for range 3 {
				v := f.send(0, request("joe", "acme", 1))
				want(t, "with a spent limit", v, true)
				if v.RetryAfter != time.Minute || v.Refusing.Rule != "tenant" {
					t.Errorf("policy %v: retry after %v by %q, want a minute by tenant", p, v.RetryAfter,
						v.Refusing.Rule)
				}
			}
			f.set(func() { f.known = nothing })
			if d := decisionOn(f.send(0, request("joe", "", 1)), "joe"); d.Remaining != 9 {
				t.Errorf("policy %v: %d left on the share, want 9: refused requests took nothing", p, d.Remaining)
			}
		})
	}
}

func TestPostPaidChargeIsNeverRefused(t *testing.T) {
	d := policy(descriptors.FailClosed, 5)
	d.Rules[0].PostPaid = true
	b, _ := failing(t, nil, d)
	want(t, "post-paid", b.decide(request("u", "", 9)), false)
}

// broken is a Counter that panics.
type broken struct{ engine.Counter }

func (broken) Try(*limit.Request) bool                { return false }
func (broken) Ask(context.Context, ...*limit.Request) { panic("of a test") }
func (broken) Peek(context.Context, *limit.Request)   { panic("of a test") }

// brokenProfiles panics, too.
type brokenProfiles struct{}

func (brokenProfiles) Any(string) bool { return true }

func (brokenProfiles) Look(context.Context, string, *descriptors.Who, *descriptors.Profiles) bool {
	panic("of a test")
}

func TestAPanicOfTheStoreIsDecidedByPolicy(t *testing.T) {
	for policyOf, refused := range map[descriptors.Failure][2]bool{
		descriptors.FailOpen: {false, false}, descriptors.FailClosed: {true, true},
		descriptors.FailLocal: {false, true},
	} {
		panics := 0
		b, _ := failing(t, func(c *engine.Config) {
			c.Store, c.OnPanic = broken{}, func(any) { panics++ }
		}, policy(policyOf, 1))
		for i := range refused {
			v := b.ask([]string{"user", "u"})
			want(t, "panic", v, refused[i])
			if v.Degraded != "panic" {
				t.Fatalf("degraded %q, want panic", v.Degraded)
			}
		}
		if panics != 2 {
			t.Errorf("OnPanic saw %d panics, want 2", panics)
		}
	}
}

// TestAPanicAfterMatchingIsDecidedByThePolicies: here of the function that counts the sidecars.
func TestAPanicAfterMatchingIsDecidedByThePolicies(t *testing.T) {
	for policy, refused := range map[descriptors.Failure]bool{
		descriptors.FailClosed: true, descriptors.FailOpen: false, descriptors.FailLocal: false,
	} {
		panics := 0
		b, _ := failing(t, func(c *engine.Config) {
			c.Live, c.OnPanic = func(string) int { panic("of a test") }, func(any) { panics++ }
		}, pair(policy))
		v := b.decide(request("joe", "acme", 1))
		if v.Refused != refused || v.Degraded != "panic" || panics != 1 || refused && v.RetryAfter != time.Second {
			t.Errorf("%v: refused %v, degraded %q, %d panics, after %v", policy, v.Refused, v.Degraded, panics,
				v.RetryAfter)
		}
	}
}

// TestAVerdictStandsDespiteAPanicOfItsObserver, and each of several verdicts is seen.
func TestAVerdictStandsDespiteAPanicOfItsObserver(t *testing.T) {
	panics, seen := 0, 0
	b := newBench(t, func(c *engine.Config) {
		c.OnPanic = func(any) { panics++ }
		c.Observers = []engine.Observer{
			func(context.Context, *descriptors.Request, *engine.Verdict) { panic("of a test") },
			func(context.Context, *descriptors.Request, *engine.Verdict) { seen++ },
		}
	}, pair(descriptors.FailOpen))
	for i := range 6 {
		want(t, "of 4", b.decide(request("joe", "acme", 1)), i >= 4)
	}
	if panics != 6 || seen != 6 {
		t.Errorf("OnPanic saw %d panics and the other observer %d verdicts, want 6 each", panics, seen)
	}
}

// TestAPanicWhileMatchingAdmits: here of the profiles, under rules that fail closed.
func TestAPanicWhileMatchingAdmits(t *testing.T) {
	panics, seen := 0, 0
	b := newBench(t, func(c *engine.Config) {
		c.Profiles, c.OnPanic = brokenProfiles{}, func(any) { panics++ }
		c.Observers = []engine.Observer{func(context.Context, *descriptors.Request, *engine.Verdict) { seen++ }}
	}, policy(descriptors.FailClosed, 1))
	v := b.decide(request("u", "", 1))
	if v.Refused || v.Degraded != "panic" || v.Outcome != engine.Unknown || panics != 1 || seen != 1 {
		t.Errorf("degraded %q, outcome %v, %d panics, seen %d times", v.Degraded, v.Outcome, panics, seen)
	}
}
