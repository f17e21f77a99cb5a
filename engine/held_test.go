package engine_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store"
)

// lender is a store that decides the charges of one user by tokens that it holds, and tells the sum when the test asks for it.
type lender struct {
	*gate
	user   string
	count  func(c limit.Charge, n int64)
	last   limit.Charge
	untold int64
}

func (l *lender) OnHeld(count func(c limit.Charge, n int64)) { l.count = count }

func (l *lender) Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	l.gate.Spend(ctx, charges, decisions)
	for i, c := range charges {
		if d := &decisions[i]; of(l.user)(c) && c.Op == limit.Spend && d.Outcome == limit.Allowed {
			d.Held = true
			l.last, l.untold = c, l.untold+d.Charged
		}
	}
}

func (l *lender) tell() {
	l.count(l.last, l.untold)
	l.untold = 0
}

// TestHeldTokensThatAreGivenBackAreTakenOffTheShare: a closed rule refuses a request that spent tokens that the store holds. The sum that is told
// later has them, too.
func TestHeldTokensThatAreGivenBackAreTakenOffTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lender{gate: &gate{truth: store.NewMemory(store.MemoryConfig{}), away: nothing, mute: nothing, foul: nothing, slow: atOnce}, user: "joe"}
		e := engine.New(engine.Config{Store: s, Fallback: store.NewMemory(store.MemoryConfig{})})
		defer e.Close()
		set, problems := descriptors.Compile([]descriptors.Domain{pair(descriptors.FailClosed)}, descriptors.Options{})
		if set == nil {
			t.Fatalf("the test's own rules do not compile: %v", problems)
		}
		e.Use(set)
		f := &fleet{t: t, gate: s.gate, engines: []*engine.Engine{e}}
		want(t, "with the store", f.send(0, request("joe", "acme", 2)), false)
		s.tell()
		f.lose(of("acme"))
		want(t, "closed", f.send(0, request("joe", "acme", 2)), true)
		s.tell()
		if got := f.usedBy("joe"); got != 2 {
			t.Fatalf("%d used at the store, want 2, by the first request", got)
		}
		f.lose(everything)
		if d := decisionOn(f.send(0, request("joe", "", 1)), "joe"); d.Remaining != 7 {
			t.Fatalf("%d left locally, want 7: the share counts the first request and this one", d.Remaining)
		}
	})
}
