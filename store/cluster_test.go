package store

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// clusterClient is a client of a cluster, by the addresses of two of its nodes only.
func clusterClient(c *servers.RedisCluster) *redis.Client {
	return client(redis.Config{
		Servers: redis.Servers{Kind: redis.Cluster, Addresses: c.Addrs()[2:4], DialTimeout: time.Second},
		Silence: 2 * time.Second,
	})
}

// openCluster opens a store on a cluster.
func openCluster(t *testing.T, c *servers.RedisCluster, config RedisConfig) *Redis {
	t.Helper()
	config.Main = clusterClient(c)
	r := open(t, config)
	for _, master := range c.Masters(t) {
		awaitAllowed(t, r, inSlots(t, c.Slots(t, master), "warm", bucket(1_000_000, year)))
	}
	return r
}

// inSlots is a charge of 1 on a counter in one of the slots.
func inSlots(t *testing.T, slots []int, name string, l limit.Limit) limit.Charge {
	t.Helper()
	for i := range 1_000_000 {
		c := charge(t, fmt.Sprint(name, i), l, 1)
		if _, ok := slices.BinarySearch(slots, redis.SlotOf(c.Key)); ok {
			return c
		}
	}
	t.Fatalf("no key in %d slots", len(slots))
	return limit.Charge{}
}

// TestCluster shares one cluster, since that takes long to start.
func TestCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	c := servers.StartCluster(t)
	for _, step := range []struct {
		name string
		test func(t *testing.T, c *servers.RedisCluster)
	}{
		{"a split request is answered as a whole one", func(t *testing.T, c *servers.RedisCluster) {
			walk(t, openCluster(t, c, RedisConfig{}))
		}},
		{"split requests are charged whole or not at all", func(t *testing.T, c *servers.RedisCluster) {
			jostle(t, openCluster(t, c, RedisConfig{}), 2000)
		}},
		{"many slots are one batch per server", oneBatchPerServer},
		{"sidecars count each other", countOverSlots},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, c) })
	}
}

func oneBatchPerServer(t *testing.T, c *servers.RedisCluster) {
	var calls, charges atomic.Int64
	main := client(redis.Config{
		Servers: redis.Servers{Kind: redis.Cluster, Addresses: c.Addrs()}, Silence: patient,
		OnCall: func(_ string, _, n int, _ time.Duration, _ string) {
			calls.Add(1)
			charges.Add(int64(n))
		},
	})
	r := open(t, RedisConfig{Main: main})
	awaitAllowed(t, r, charge(t, "warm", bucket(1_000_000, year), 1))
	calls.Store(0)
	charges.Store(0)
	for _, d := range spend(r, tree(t, 60, bucket(5, year))...) {
		want(t, "a counter of many slots", d, limit.Allowed, 1, 4)
	}
	servers.Await(t, "the ends of the calls", func() error { return notYet(charges.Load() == 60) })
	if n := calls.Load(); n != 3 {
		t.Errorf("60 slots on 3 servers were asked in %d calls, want 3", n)
	}
}

func countOverSlots(t *testing.T, c *servers.RedisCluster) {
	all := openLive(t, 3, func() *redis.Client { return clusterClient(c) })
	all[0].Serve([]string{"shop", "search"})
	all[1].Serve([]string{"shop"})
	awaitLive(t, "on a cluster", all[0], allDomains, 3)
	awaitLive(t, "on a cluster", all[0], "shop", 2)
	awaitLive(t, "on a cluster", all[0], "search", 1)
}
