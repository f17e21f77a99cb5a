package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// generous is a Counter that takes everything at once, as leases do, and allocates nothing.
type generous struct{ engine.Counter }

func (generous) Try(r *limit.Request) bool {
	for i := range r.Charges {
		r.Decisions[i] = limit.Decision{Outcome: limit.Allowed, Charged: 1, Held: true}
	}
	return true
}

func TestALeasedDecisionAllocatesNothing(t *testing.T) {
	domain := descriptors.Domain{Name: "d", Rules: []descriptors.Rule{
		bucket("user", descriptors.ScopeUser, 1_000_000), bucket("tenant", descriptors.ScopeTenant, 1_000_000),
	}}
	b := newBench(t, func(c *engine.Config) { c.Store, c.Share = generous{}, memory.New(memory.Config{}) }, domain)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	set := b.Rules()
	req, v := request("joe", "acme", 1), new(engine.Verdict)
	var m descriptors.Match
	matching := testing.AllocsPerRun(1000, func() {
		set.Match(req, &m)
		m.Reset()
	})
	done := true
	deciding := testing.AllocsPerRun(1000, func() {
		done = done && b.Begin(ctx, req, v)
		v.Empty()
	})
	if !done || deciding > matching {
		t.Errorf("done %v with %v allocations, of which matching has %v; want no others", done, deciding, matching)
	}
}

func TestBeginDecidesWhatNeedsNoWaiting(t *testing.T) {
	b := newBench(t, nil, throttled(time.Second, time.Minute))
	for i, done := range []bool{true, false} {
		v := new(engine.Verdict)
		if got := b.Begin(t.Context(), request("u", "", 1), v); got != done || v.Refused {
			t.Errorf("request %d: done %v, refused %v; want done %v, and admitted", i, got, v.Refused, done)
		}
	}
}

func TestFinishAsksOnceForAllVerdicts(t *testing.T) {
	way, seen := newGate(), map[*engine.Verdict]int{}
	b := newBench(t, func(c *engine.Config) {
		c.Store = way
		c.Observers = []engine.Observer{func(_ context.Context, _ *descriptors.Request, v *engine.Verdict) {
			seen[v]++
		}}
	}, policy(descriptors.FailOpen, 3))
	var verdicts []*engine.Verdict
	for i, user := range []string{"a", "a", "a", "", "a", "b"} {
		v := new(engine.Verdict)
		verdicts = append(verdicts, v)
		if done := b.Begin(t.Context(), request(user, "", 1), v); done != (user == "") {
			t.Errorf("request %d: done %v", i, done)
		}
	}
	b.Finish(t.Context(), verdicts...)
	for i, refused := range []bool{false, false, false, false, true, false} {
		if v := verdicts[i]; v.Refused != refused || seen[v] != 1 {
			t.Errorf("request %d: refused %v, seen %d times; want %v, once", i, v.Refused, seen[v], refused)
		}
	}
	if way.asks != 1 || len(way.seen) != 5 {
		t.Errorf("%d requests in %d questions, want 5 in one", len(way.seen), way.asks)
	}
}

func TestAQuestionLeavesAFifthOfTheDeadline(t *testing.T) {
	inSidecars(t, 1, policy(descriptors.FailOpen, 3), func(t *testing.T, f *sidecars) {
		began := time.Now()
		f.within(20*time.Millisecond, request("u", "", 1))
		f.send(0, request("u", "", 1))
		if got := f.seen[0].Due.Sub(began); got != 16*time.Millisecond {
			t.Errorf("a caller that waits for 20 ms asks for %v, want 16 ms", got)
		}
		if got := f.seen[1].Due; !got.IsZero() {
			t.Errorf("a caller without deadline asks until %v, want no end", got)
		}
	})
}
