package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestWhatIsSpentOfHeldTokensIsTold, all of it and once: when what is held is returned, and where the server is away before the first request is
// left undecided.
func TestWhatIsSpentOfHeldTokensIsTold(t *testing.T) {
	for name, let := range map[string]func(*testing.T, *Redis, *servers.Redis, limit.Charge){
		"idle":  func(*testing.T, *Redis, *servers.Redis, limit.Charge) {},
		"rules": func(_ *testing.T, r *Redis, _ *servers.Redis, _ limit.Charge) { r.Forget() },
		"away": func(t *testing.T, r *Redis, server *servers.Redis, c limit.Charge) {
			server.Kill(t)
			for spend(r, c)[0].Outcome == limit.Allowed {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			r := leasing(t, server.Addr)
			c := leased("k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000, Window: 24 * time.Hour, Burst: 1_000_000})
			c.Class, c.Share = 7, "shop"
			var told atomic.Int64
			r.OnHeld(func(got limit.Charge, n int64) {
				if got.Key != c.Key || got.Limit != c.Limit || got.Class != c.Class || got.Share != c.Share || n < 1 {
					t.Errorf("told %d of %+v", n, got)
				}
				told.Add(n)
			})
			heat(t, r, c)
			let(t, r, server, c)
			all := func() error {
				if decided := r.Stats().LeaseDecisions; told.Load() != decided {
					return fmt.Errorf("%d tokens were spent of what is held, and %d were told", decided, told.Load())
				}
				return nil
			}
			if name != "away" {
				servers.Await(t, "all that was spent", all)
			} else if err := all(); err != nil {
				t.Error(err)
			}
		})
	}
}
