package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// tardy is a store whose first reply comes after the caller was answered. Further calls are decided at once, and noted.
type tardy struct {
	pending []*limit.Pending
	later   []limit.Charge
}

func (s *tardy) Spend(_ context.Context, charges []limit.Charge, decisions []limit.Decision) {
	for i := range charges {
		if len(s.pending) < len(charges) && len(s.later) == 0 {
			s.pending = append(s.pending, new(limit.Pending))
			decisions[i] = limit.Decision{Reason: "timeout", Unknown: true, Pending: s.pending[len(s.pending)-1]}
			continue
		}
		s.later = append(s.later, charges[i])
		decisions[i] = limit.Decision{Outcome: limit.Allowed}
	}
}

func (s *tardy) Usage(_ context.Context, _ []limit.Charge, _ []limit.Decision) {}

func (s *tardy) Reset(context.Context, []string) error { return nil }

// TestALateReplyIsSettled: the store's decision comes after the failure policy has answered the request.
func TestALateReplyIsSettled(t *testing.T) {
	taken := limit.Decision{Outcome: limit.Allowed, Charged: 1, At: 1}
	for name, step := range map[string]struct {
		policy       descriptors.Failure
		reply        limit.Decision
		over         int
		refund, owed int64
	}{
		"charged and admitted":                         {descriptors.FailOpen, taken, 0, 0, 0},
		"charged and refused":                          {descriptors.FailClosed, taken, 0, 1, 0},
		"refused and admitted":                         {descriptors.FailOpen, limit.Decision{Outcome: limit.Refused}, 1, 0, 0},
		"refused and refused":                          {descriptors.FailClosed, limit.Decision{Outcome: limit.Refused}, 0, 0, 0},
		"lost":                                         {descriptors.FailLocal, limit.Decision{Reason: "closed", Unknown: true}, 0, 0, 0},
		"never sent, and admitted on the share":        {descriptors.FailLocal, limit.Decision{Reason: "closed"}, 0, 0, 1},
		"charged, and admitted on the share":           {descriptors.FailLocal, taken, 0, 0, 0},
		"refused by the store, admitted by the share":  {descriptors.FailLocal, limit.Decision{Outcome: limit.Refused}, 1, 0, 0},
		"never sent, and refused by a rule's own word": {descriptors.FailClosed, limit.Decision{Reason: "closed"}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(tardy)
			var over []string
			b := newBench(t, func(c *engine.Config) {
				c.Fallback, c.Store = c.Store, s
				c.OnOverAdmitted = func(domain *descriptors.CompiledDomain, effect *descriptors.Effect) {
					over = append(over, domain.Name+" "+effect.Rule)
				}
			}, policy(step.policy, 10))
			b.ask([]string{"user", "u"})
			if len(s.pending) != 1 {
				t.Fatalf("%d charges are pending, want 1", len(s.pending))
			}
			s.pending[0].Resolve(step.reply)
			if len(over) != step.over {
				t.Errorf("over-admissions %q, want %d", over, step.over)
			}
			refunded := int64(0)
			for _, c := range s.later {
				if c.Op == limit.Refund {
					refunded += c.Cost
				}
			}
			if refunded != step.refund || b.Stats().Owed != step.owed {
				t.Errorf("%d given back, %d counters owed; want %d, %d", refunded, b.Stats().Owed, step.refund, step.owed)
			}
		})
	}
}

// TestALateRefusalOfOneLimitLeavesTheOtherOwed: the share admits a request that the store refuses by one of two limits, so the store charges
// neither.
func TestALateRefusalOfOneLimitLeavesTheOtherOwed(t *testing.T) {
	s := new(tardy)
	var over []string
	b := newBench(t, func(c *engine.Config) {
		c.Fallback, c.Store = c.Store, s
		c.OnOverAdmitted = func(_ *descriptors.CompiledDomain, effect *descriptors.Effect) { over = append(over, effect.Rule) }
	}, pair(descriptors.FailLocal))
	v := b.decide(request("joe", "acme", 2))
	want(t, "on the share", v, false)
	if len(s.pending) != 2 {
		t.Fatalf("%d charges are pending, want 2", len(s.pending))
	}
	for i, c := range v.Match.Charges {
		reply := limit.Decision{Outcome: limit.Allowed, Remaining: 9, At: 1}
		if of("acme")(c) {
			reply = limit.Decision{Outcome: limit.Refused, At: 1}
		}
		s.pending[i].Resolve(reply)
	}
	if !slices.Equal(over, []string{"tenant"}) {
		t.Errorf("over-admissions of %q, want the tenant's", over)
	}
	if got := b.Stats().Owed; got != 1 {
		t.Fatalf("%d counters are owed, want 1: the user's tokens were handed out and not charged", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// reluctant is a store that is left alone for a while after the late reply, as by an open breaker.
type reluctant struct {
	tardy
	away atomic.Int64 // calls that are not made
}

func (s *reluctant) Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(s.pending) > 0 && s.away.Add(-1) >= 0 {
		decisions[0] = limit.Decision{Reason: "breaker"}
		return
	}
	s.tardy.Spend(ctx, charges, decisions)
}

// TestALateChargeIsGivenBackOnceTheBreakerLetsIt: what made the reply late has opened it.
func TestALateChargeIsGivenBackOnceTheBreakerLetsIt(t *testing.T) {
	s := new(reluctant)
	b := newBench(t, func(c *engine.Config) { c.Fallback, c.Store = c.Store, s }, policy(descriptors.FailClosed, 10))
	b.ask([]string{"user", "u"})
	s.away.Store(2)
	s.pending[0].Resolve(limit.Decision{Outcome: limit.Allowed, Charged: 1, At: time.Now().UnixMicro(), ResetAfter: time.Hour})
	servers.Await(t, "the attempts", func() error {
		if left := s.away.Load(); left >= 0 {
			return fmt.Errorf("%d calls are still to fail", left)
		}
		return nil
	})
	b.Close()
	if len(s.later) != 1 || s.later[0].Op != limit.Refund || b.Stats().GiveBackFailed != 0 {
		t.Errorf("%+v is given back, %d failed", s.later, b.Stats().GiveBackFailed)
	}
}
