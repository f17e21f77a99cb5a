package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

func clusterAt(addresses ...string) redis.Config {
	return redis.Config{Servers: redis.Servers{Kind: redis.Cluster, Addresses: addresses}}
}

// openCluster connects to a cluster by its first node.
func openCluster(t *testing.T, c *servers.RedisCluster, change func(*redis.Config)) *redis.Client {
	t.Helper()
	cfg := clusterAt(c.Addrs()[0])
	if change != nil {
		change(&cfg)
	}
	client := open(t, cfg)
	client.Ready(t.Context())
	return client
}

func TestKeysOfAClusterAreWhereTheirSlotIs(t *testing.T) {
	cluster := servers.StartCluster(t)
	var seen calls
	c := openCluster(t, cluster, func(c *redis.Config) { c.OnCall = seen.add })
	if n := len(c.Servers()); n != 3 {
		t.Fatalf("%d masters, want 3", n)
	}
	for i := range 30 {
		key := fmt.Sprint("key", i)
		if got, want := c.Slot(key), cluster.SlotOf(t, key); got != want {
			t.Errorf("the slot of %s is %d, want %d", key, got, want)
		}
		if got, want := c.Server(key).Name(), cluster.MasterOf(t, c.Slot(key)).Addr; got != want {
			t.Errorf("%s is on %s, want %s", key, got, want)
		}
		wantCount(t, c, key, 1)
		if got, err := c.Run(t.Context(), key, "GET", key); got != "1" || err != nil {
			t.Errorf("%s is %v, %v", key, got, err)
		}
	}
	for _, one := range seen.list() {
		if one.reason != "" {
			t.Errorf("a call failed: %s", one.reason)
		}
	}
}

// TestSlotsOfOneServerShareABatch: one pipeline with a run for each slot.
func TestSlotsOfOneServerShareABatch(t *testing.T) {
	cluster := servers.StartCluster(t)
	var seen calls
	c := openCluster(t, cluster, func(c *redis.Config) { c.OnCall = seen.add })
	home := c.Servers()[0]
	var all []*redis.Pending
	for i := 0; len(all) < 20; i++ {
		if key := fmt.Sprint("key", i); c.Server(key) == home {
			all = append(all, add(key), add(key))
		}
	}
	home.Do(all...)
	await(t, all...)
	for i, p := range all {
		if want := int64(1 + i%2); p.Err != nil || p.Reply[1] != want {
			t.Errorf("request %d: %v, %v; want %d", i, p.Reply, p.Err, want)
		}
	}
	if want := []call{{20, 20, ""}}; !slices.Equal(seen.list(), want) {
		t.Errorf("the calls are %v, want %v", seen.list(), want)
	}
}

// TestRequestsBeforeTheSlotsAreKnown wait for them.
func TestRequestsBeforeTheSlotsAreKnown(t *testing.T) {
	cluster := servers.StartCluster(t)
	cfg := clusterAt(cluster.Addrs()[0])
	cfg.Silence = time.Minute
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	other := open(t, cfg)
	if got, err := other.Run(t.Context(), "a", "GET", "a"); got != "1" || err != nil {
		t.Errorf("a cold command: %v, %v", got, err)
	}
}

func TestAClusterThatIsAway(t *testing.T) {
	c := open(t, clusterAt(servers.FreeAddr(t), servers.FreeAddr(t)))
	wantFault(t, c, redis.ReasonDial, false)
	if _, err := c.Run(t.Context(), "", "PING"); redis.Reason(err) != redis.ReasonDial {
		t.Errorf("a cold command: %v", err)
	}
	if names := c.Servers(); len(names) != 1 || names[0].Name() != "cluster" {
		t.Errorf("the servers are %v", names)
	}
}

// TestNothingIsLostNorRunsTwiceWhileSlotsMove: requests are sent on by MOVED and ASK.
func TestNothingIsLostNorRunsTwiceWhileSlotsMove(t *testing.T) {
	cluster := servers.StartCluster(t)
	c := openCluster(t, cluster, func(c *redis.Config) { c.Silence = time.Minute })
	masters := cluster.Masters(t)
	moving := cluster.Slots(t, masters[0])[:20]
	var keys []string
	for i := 0; len(keys) < 10; i++ {
		if key := fmt.Sprint("key", i); slices.Contains(moving, c.Slot(key)) {
			keys = append(keys, key)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	counted := make([]int64, len(keys))
	for i, key := range keys {
		callers.Go(func() {
			for ctx.Err() == nil {
				got, err := do(t, c, add(key))
				if err != nil || got[1] != counted[i]+1 {
					t.Errorf("%s: %v, %v; want %d", key, got, err, counted[i]+1)
					return
				}
				counted[i]++
			}
		})
	}
	cluster.MoveSlots(t, masters[0], masters[1], len(moving))
	cancel()
	callers.Wait()
	servers.Await(t, "the new map", func() error {
		if home := c.Server(keys[0]).Name(); home != masters[1].Addr {
			return fmt.Errorf("the key is on %s", home)
		}
		return nil
	})
}

// TestAFailoverInACluster: the replica takes the place of a master that is dead.
func TestAFailoverInACluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	c := openCluster(t, cluster, nil)
	wantCount(t, c, "a", 1)
	master := cluster.MasterOf(t, c.Slot("a"))
	replica := cluster.ReplicaOf(t, master)
	servers.Await(t, "the replica to have the counter", func() error {
		if !strings.Contains(fmt.Sprint(replica.Do(t, "DBSIZE")), "1") {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	master.Kill(t)
	servers.Await(t, "an answer of the replica", func() error {
		_, err := do(t, c, add("a"))
		return err
	})
	if got := c.Server("a").Name(); got != replica.Addr {
		t.Errorf("the master is %s, want %s", got, replica.Addr)
	}
}

// TestAClusterThatNamesNoHosts: its servers are where the one is that has the map.
func TestAClusterThatNamesNoHosts(t *testing.T) {
	for _, kind := range []string{"unknown-endpoint", "hostname"} {
		cluster := servers.StartCluster(t, "--cluster-preferred-endpoint-type", kind)
		c := openCluster(t, cluster, nil)
		for i := range 20 {
			wantCount(t, c, fmt.Sprint("key", i), 1)
		}
	}
}
