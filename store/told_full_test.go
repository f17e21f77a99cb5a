//go:build full

package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAResetIsNotTold: what was spent before a reset does not count after it.
func TestAResetIsNotTold(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		server := servers.StartRedis(t)
		r := leasing(t, server.Addr)
		c := leased("k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000, Window: 24 * time.Hour, Burst: 1_000_000})
		heat(t, r, c)
		var told atomic.Int64
		r.holdings.mu.Lock()
		for _, l := range r.holdings.all {
			l.untold = 5
		}
		r.holdings.onHeld = func(_ limit.Charge, n int64) { told.Add(n) }
		r.holdings.mu.Unlock()
		err := r.Reset(t.Context(), []string{c.Key})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if n := told.Load(); n != 0 {
			t.Errorf("%d tokens were told after the reset", n)
		}
	})
}
