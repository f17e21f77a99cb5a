package engine_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// spread has one rule per endpoint, so that a client can spread its refusals over three of them.
func spread(p descriptors.Penalty) descriptors.Domain {
	d := descriptors.Domain{Name: "d", Penalty: &p}
	for _, name := range []string{"a", "b", "c"} {
		d.Rules = append(d.Rules, descriptors.Rule{
			Name: name, Scope: descriptors.ScopeEndpoint, HasScope: true, Limits: []descriptors.Limit{perMinute(1)},
			Match: descriptors.Conditions{Endpoints: []descriptors.Pattern{{Text: "/" + name}}},
		})
	}
	d.Rules = append(d.Rules, descriptors.Rule{
		Name: "free", Scope: descriptors.ScopeIP, HasScope: true, Limits: []descriptors.Limit{{Unlimited: true}},
		Match: descriptors.Conditions{Endpoints: []descriptors.Pattern{{Text: "/free"}}},
	})
	return d
}

func hour() descriptors.Penalty {
	const coolDown = 10 * time.Minute
	return descriptors.Penalty{Threshold: 3, DetectionWindow: time.Hour, CoolDown: coolDown, Multipliers: []int{1, 2}}
}

func (b *bench) visit(client, path string) *engine.Verdict {
	b.t.Helper()
	return b.ask([]string{"remote_address", client, "path", path})
}

// spend uses up the three endpoints by another client.
func (b *bench) spendAll() {
	b.t.Helper()
	for _, path := range []string{"/a", "/b", "/c"} {
		want(b.t, path, b.visit("10.0.0.9", path), false)
	}
}

func TestRefusalsOfAllRulesOfADomainCountForOneClient(t *testing.T) {
	b := newBench(t, nil, spread(hour()))
	b.spendAll()
	for _, path := range []string{"/a", "/b"} {
		v := b.visit("10.0.0.1", path)
		want(t, path, v, true)
		if v.RetryAfter > time.Minute {
			t.Errorf("%s: retry after %v, before any cool-down", path, v.RetryAfter)
		}
	}
	v := b.visit("10.0.0.1", "/c")
	want(t, "the third", v, true)
	if v.RetryAfter != 10*time.Minute || v.Refusing.Rule != "c" {
		t.Errorf("retry after %v by %q, want that of the cool-down, by its rule", v.RetryAfter, v.Refusing.Rule)
	}
	b.now = b.now.Add(2 * time.Minute) // the windows are over, the cool-down is not
	for _, path := range []string{"/a", "/free"} {
		v = b.visit("10.0.0.1", path)
		want(t, path+" in the cool-down", v, true)
		s := v.Statuses[0]
		if v.RetryAfter != 8*time.Minute || v.Refusing.Rule != descriptors.RulePenalty || !s.Over || s.Effect != nil {
			t.Errorf("%s in the cool-down: retry after %v by %q, status %+v", path, v.RetryAfter, v.Refusing.Rule, s)
		}
	}
	want(t, "what no rule is about", b.visit("10.0.0.1", "/other"), false)
	want(t, "another client, on what the one in the cool-down did not take", b.visit("10.0.0.2", "/a"), false)
	b.now = b.now.Add(8 * time.Minute)
	want(t, "after the cool-down", b.visit("10.0.0.1", "/b"), false)
}

func TestADomainsPenaltyAsADryRun(t *testing.T) {
	p := hour()
	p.DryRun = true
	b := newBench(t, nil, spread(p))
	b.spendAll()
	for range 5 {
		if v := b.visit("10.0.0.1", "/a"); !v.Refused || v.RetryAfter > time.Minute {
			t.Fatalf("refused %v, retry after %v", v.Refused, v.RetryAfter)
		}
	}
	v := b.visit("10.0.0.1", "/free")
	want(t, "what is unlimited", v, false)
	if !v.Decisions[v.Match.Gate-1].Penalized {
		t.Error("the dry run does not show the cool-down")
	}
}

// Refusals by a tree are the tree's, and nothing is recorded of peeks and of what is only logged.
func TestWhatDoesNotCountForADomainsPenalty(t *testing.T) {
	d := spread(hour())
	d.Tree = []descriptors.Node{leaf("t", "", 1)}
	watch := bucket("watch", descriptors.ScopeGlobal, 1)
	watch.Action = descriptors.LogOnly
	d.Rules = append(d.Rules, watch)
	b := newBench(t, nil, d)
	b.spendAll()
	client := []string{"remote_address", "10.0.0.1", "path", "/free"}
	for range 5 {
		b.ask([]string{"t", "x"}, client)
		peek := asking([]string{"remote_address", "10.0.0.1", "path", "/a"})
		peek.Descriptors[0].HitsGiven = true
		b.decide(peek)
	}
	want(t, "a client that no rule refused", b.ask(client), false)
}

// TestADomainsPenaltyWithoutItsStore: the record is kept in this process, and what a lost store refuses by policy does
// not count.
func TestADomainsPenaltyWithoutItsStore(t *testing.T) {
	for _, c := range []struct {
		policy  descriptors.Failure
		refused bool // what is unlimited, after three refusals
	}{{descriptors.FailLocal, true}, {descriptors.FailClosed, false}} {
		d := spread(hour())
		d.OnFailure = c.policy
		b, _ := failing(t, nil, d)
		for range 4 {
			b.visit("10.0.0.1", "/a")
		}
		want(t, "what is unlimited", b.visit("10.0.0.1", "/free"), c.refused)
	}
}

// TestADomainsPenaltyDoesNotAskASilentStoreAgain: one question per request, also of those that the share refuses.
func TestADomainsPenaltyDoesNotAskASilentStoreAgain(t *testing.T) {
	b, lost := failing(t, nil, spread(hour()))
	for range 4 {
		b.visit("10.0.0.1", "/a")
	}
	if lost.asks != 4 {
		t.Errorf("the store was asked %d times for 4 requests, want 4", lost.asks)
	}
}
