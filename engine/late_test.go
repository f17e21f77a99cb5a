package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// TestALateReplyIsCompared: the store's decision comes after the failure policy has answered the request.
func TestALateReplyIsCompared(t *testing.T) {
	for name, c := range map[string]struct {
		policy       descriptors.Failure
		spent        bool // the limit is spent at the store
		refused      bool
		over, refund int64
		used         int64
	}{
		"admitted and charged":                         {descriptors.FailOpen, false, false, 0, 0, 1},
		"admitted, and the store refuses":              {descriptors.FailOpen, true, false, 1, 0, 1},
		"admitted on the share, and charged":           {descriptors.FailLocal, false, false, 0, 0, 1},
		"admitted on the share, and the store refuses": {descriptors.FailLocal, true, false, 1, 0, 1},
		"refused and charged":                          {descriptors.FailClosed, false, true, 0, 1, 0},
		"refused, and the store refuses":               {descriptors.FailClosed, true, true, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var rules []string
			d := counted(limit.FixedWindow, 1, 24*time.Hour)
			d.Rules[0].OnFailure = c.policy
			set := func(cfg *engine.Config) {
				cfg.OnOverAdmitted = func(domain *descriptors.CompiledDomain, effect *descriptors.Effect) {
					rules = append(rules, domain.Name+" "+effect.Rule)
				}
			}
			inFleet(t, 1, d, func(t *testing.T, f *fleet) {
				if c.spent {
					f.send(0, request("u", "", 1))
				}
				f.delay(slowly(50 * time.Millisecond))
				v, took := f.within(20*time.Millisecond, request("u", "", 1))
				want(t, name, v, c.refused)
				if took != 16*time.Millisecond {
					t.Errorf("answered after %v, want 16 ms", took)
				}
				f.delay(atOnce)
				pass(time.Second)
				synctest.Wait()
				stats := f.engines[0].Stats()
				if stats != (engine.Stats{OverAdmitted: c.over}) || len(rules) != int(c.over) {
					t.Errorf("%+v, over-admitted %q; want %d", stats, rules, c.over)
				}
				if got, used := f.refunds(), f.usedBy("u"); got != c.refund || used != c.used {
					t.Errorf("%d given back and %d used, want %d and %d", got, used, c.refund, c.used)
				}
			}, set)
		})
	}
}

// TestALateRefusalOfOneLimitCountsOnce: the share admits a request that the store refuses by one of two limits.
func TestALateRefusalOfOneLimitCountsOnce(t *testing.T) {
	inFleet(t, 1, pair(descriptors.FailLocal), func(t *testing.T, f *fleet) {
		f.send(0, request("ann", "acme", 4))
		f.delay(slowly(50 * time.Millisecond))
		v, _ := f.within(20*time.Millisecond, request("joe", "acme", 2))
		want(t, "on the share", v, false)
		pass(time.Second)
		if got := f.engines[0].Stats(); got.OverAdmitted != 1 || f.refunds() != 0 {
			t.Errorf("%+v with %d given back, want one over-admission", got, f.refunds())
		}
	})
}

// TestALateRefundIsTriedOnce, and counted when it fails. A late reply that is lost changes nothing.
func TestALateRefundIsTriedOnce(t *testing.T) {
	for _, err := range []error{nil, errors.New("closed")} {
		inFleet(t, 1, policy(descriptors.FailClosed, 5), func(t *testing.T, f *fleet) {
			e := f.engines[0]
			f.late = func(fate *limit.Fate, charges []limit.Charge, decisions []limit.Decision, _ error) {
				e.Late(fate, charges, decisions, err)
			}
			f.delay(slowly(50 * time.Millisecond))
			f.within(20*time.Millisecond, request("u", "", 3))
			f.lose(func(c limit.Charge) bool { return c.Op == limit.Refund })
			pass(10 * time.Second)
			refunds, failed := int64(3), int64(1)
			if err != nil {
				refunds, failed = 0, 0
			}
			if got := e.Stats().GiveBackFailed; got != failed || f.refunds() != refunds {
				t.Errorf("late with %v: %d failed, %d tokens in refunds; want %d, of %d", err, got, f.refunds(), failed, refunds)
			}
		})
	}
}

// TestCloseWaitsForRefunds, and lets no further one begin.
func TestCloseWaitsForRefunds(t *testing.T) {
	inFleet(t, 1, policy(descriptors.FailClosed, 5), func(t *testing.T, f *fleet) {
		f.delay(slowly(50 * time.Millisecond))
		f.within(20*time.Millisecond, request("u", "", 3))
		f.within(20*time.Millisecond, request("u", "", 1))
		pass(20 * time.Millisecond) // the first is decided late and its refund under way, the second is not
		synctest.Wait()
		f.engines[0].Close()
		if got := f.refunds(); got != 3 {
			t.Errorf("%d given back when the engine is closed, want 3", got)
		}
		pass(time.Second)
		if got := f.engines[0].Stats().GiveBackFailed; got != 1 {
			t.Errorf("%d not given back after the end, want 1", got)
		}
	})
}
