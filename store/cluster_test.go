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

// TestCluster shares one cluster, since that takes long to start. What changes it comes last.
func TestCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	c := servers.StartCluster(t)
	for _, step := range []struct {
		name string
		test func(t *testing.T, c *servers.RedisCluster)
	}{
		{"a split request is answered as a whole one", func(t *testing.T, c *servers.RedisCluster) {
			walk(t, openCluster(t, c, RedisConfig{}), 1, 1000)
		}},
		{"split requests are charged whole or not at all", func(t *testing.T, c *servers.RedisCluster) {
			jostle(t, openCluster(t, c, RedisConfig{}), 2000)
		}},
		{"many slots are one batch per server", oneBatchPerServer},
		{"sidecars count each other", countOverSlots},
		{"leases admit no more than the limit", leaseOverSlots},
		{"reset", resetOverSlots},
		{"slots move under load", slotsMove},
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

func leaseOverSlots(t *testing.T, c *servers.RedisCluster) {
	all := []*Redis{openCluster(t, c, RedisConfig{Leases: true}), openCluster(t, c, RedisConfig{Leases: true})}
	one, two := leased(t, "one", yearly(2000)), leased(t, "two", yearly(1_000_000))
	var admitted atomic.Int64
	crowd(4000, func(i int) {
		charges := []limit.Charge{one}
		if i%10 == 0 {
			charges = append(charges, two)
		}
		if d := spend(all[i%2], charges...); !limit.Refuses(charges, d) {
			admitted.Add(1)
		}
	})
	for _, r := range all {
		r.Forget()
	}
	if n := admitted.Load(); n > 2000 {
		t.Errorf("%d admitted of 2000", n)
	}
	wantSpent(t, all[0], one, admitted.Load())
}

func resetOverSlots(t *testing.T, c *servers.RedisCluster) {
	r := openCluster(t, c, RedisConfig{})
	var keys []string
	for _, charge := range tree(t, 20, bucket(1, year)) {
		spend(r, charge)
		keys = append(keys, charge.Key)
	}
	err := r.Reset(t.Context(), keys)
	if err != nil {
		t.Fatalf("reset: %v", err)
	}
	for _, charge := range tree(t, 20, bucket(1, year)) {
		want(t, "after the reset", spend(r, charge)[0], limit.Allowed, 1, 0)
	}
}

// slotsMove counts on counters whose slots move meanwhile, also with two of one slot in a request. None is lost, and
// none counts twice.
func slotsMove(t *testing.T, c *servers.RedisCluster) {
	const move = 100
	r := openCluster(t, c, RedisConfig{DenialEntries: -1})
	masters := c.Masters(t)
	moving := c.Slots(t, masters[0])[:move]
	var requests [][]limit.Charge
	for i := range 20 {
		one := inSlots(t, moving, fmt.Sprint(i, "-"), bucket(1_000_000, year))
		two := one
		two.Key += ":sibling"
		requests = append(requests, []limit.Charge{one}, []limit.Charge{one, two})
	}
	decided := make([]atomic.Int64, len(requests))
	var lost atomic.Int64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			if d := spend(r, requests[i%len(requests)]...); d[0].Outcome == limit.Undecided {
				lost.Add(1)
			} else {
				decided[i%len(requests)].Add(1)
			}
		}
	}()
	c.MoveSlots(t, masters[0], masters[1], move)
	close(end)
	<-ended
	for i := 0; i < len(requests); i += 2 {
		alone, both := decided[i].Load(), decided[i+1].Load()
		wantLeft(t, r, requests[i+1][0], 1_000_000-alone-both)
		wantLeft(t, r, requests[i+1][1], 1_000_000-both)
	}
	if lost.Load() > 0 || decided[0].Load() == 0 {
		t.Errorf("%d requests were undecided, %d of the first decided; want none lost", lost.Load(), decided[0].Load())
	}
	c.Settle(t)
}
