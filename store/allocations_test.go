//go:build !race

package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestATripAllocatesNothing of its own: what it takes is what the runtime needs to wake the caller, if anything.
func TestATripAllocatesNothing(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	settled(t, look(t, server, redis.Options{}), r)
	for _, n := range []int{1, 4} {
		var charges []limit.Charge
		for i := range n {
			charges = append(charges, charge(t, fmt.Sprint(i), bucket(1_000_000, time.Hour), 1))
		}
		decisions := make([]limit.Decision, n)
		allocs := testing.AllocsPerRun(500, func() {
			r.Spend(context.Background(), charges, decisions)
			if decisions[0].Outcome != limit.Allowed {
				t.Fatalf("decision %+v, want allowed", decisions[0])
			}
		})
		if allocs > 0 {
			t.Errorf("a trip of %d charges allocates %v times, want 0", n, allocs)
		}
	}
}
