//go:build full && !race

package store

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestADecisionByALeaseAllocatesNothing between door and answer.
func TestADecisionByALeaseAllocatesNothing(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		l := limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000_000, Window: time.Second, Burst: 1_000_000_000}
		charges, decisions := []limit.Charge{leased("k", l)}, make([]limit.Decision, 1)
		heat(t, r, charges[0])
		held := 0
		allocs := testing.AllocsPerRun(20_000, func() {
			r.Spend(context.Background(), charges, decisions)
			if decisions[0].Held {
				held++
			}
		})
		// A lease that is asked for meanwhile allocates something; the average rounds down.
		if allocs > 0 || held < 15_000 {
			t.Errorf("a decision allocates %v times, want 0; %d of 20,000 were made by leases", allocs, held)
		}
	})
}
