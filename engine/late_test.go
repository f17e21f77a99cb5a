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
		var rules []string
		d := counted(limit.FixedWindow, 1, 24*time.Hour)
		d.Rules[0].OnFailure = c.policy
		inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
			if c.spent {
				f.send(0, request("u", "", 1))
			}
			f.delay(slowly(50 * time.Millisecond))
			v, took := f.within(20*time.Millisecond, request("u", "", 1))
			want(t, name, v, c.refused)
			pass(time.Second)
			synctest.Wait()
			stats := f.engines[0].Stats()
			if stats != (engine.Stats{OverAdmitted: c.over}) || len(rules) != int(c.over) ||
				took != 16*time.Millisecond {
				t.Errorf("%s: after %v, %+v, over-admitted %q; want %d", name, took, stats, rules, c.over)
			}
			if got, used := f.refunds(), f.usedBy("u"); got != c.refund || used != c.used {
				t.Errorf("%s: %d given back and %d used, want %d and %d", name, got, used, c.refund, c.used)
			}
		}, func(cfg *engine.Config) {
			cfg.OnOverAdmitted = func(domain *descriptors.CompiledDomain, effect *descriptors.Effect) {
				rules = append(rules, domain.Name+" "+effect.Rule)
			}
		})
	}
}

// TestALateRefundIsTriedOnce, and counted when it fails. A late reply that is lost changes nothing.
func TestALateRefundIsTriedOnce(t *testing.T) {
	for err, failed := range map[error]int64{nil: 1, errors.New("closed"): 0} {
		inSidecars(t, 1, policy(descriptors.FailClosed, 5), func(t *testing.T, f *sidecars) {
			e := f.engines[0]
			f.late = func(fate *limit.Fate, charges []limit.Charge, decisions []limit.Decision, _ error) {
				bringLate(fate, charges, decisions, err)
			}
			f.delay(slowly(50 * time.Millisecond))
			f.within(20*time.Millisecond, request("u", "", 3))
			f.lose(func(c limit.Charge) bool { return c.Op == limit.Refund })
			pass(10 * time.Second)
			synctest.Wait()
			if got := e.Stats().RefundsFailed; got != failed || f.refunds() != 3*failed {
				t.Errorf("late with %v: %d failed, %d tokens in refunds; want %d, of 3", err, got, f.refunds(), failed)
			}
		})
	}
}

// TestCloseWaitsForRefunds, and lets no further one begin.
func TestCloseWaitsForRefunds(t *testing.T) {
	inSidecars(t, 1, policy(descriptors.FailClosed, 5), func(t *testing.T, f *sidecars) {
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
		if got := f.engines[0].Stats().RefundsFailed; got != 1 {
			t.Errorf("%d not given back after the end, want 1", got)
		}
	})
}
