package redis_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// openCluster connects to a cluster by its first node.
func openCluster(t *testing.T, c *servers.RedisCluster, change func(*redis.Config)) *redis.Client {
	t.Helper()
	cfg := at(redis.Cluster, c.Addrs()[0])
	if change != nil {
		change(&cfg)
	}
	client := open(t, cfg)
	client.Ready(t.Context())
	return client
}

// TestAClusterThatIsWell has the cases that leave it as it is.
func TestAClusterThatIsWell(t *testing.T) {
	cluster := servers.StartCluster(t)
	for name, check := range map[string]func(*testing.T, *servers.RedisCluster){
		"keys are where their slot is": keysAreWhereTheirSlotIs, "slots of one server share a batch": slotsShareABatch,
		"requests before the slots are known": requestsBeforeTheSlotsAreKnown, "news": newsOfACluster,
	} {
		t.Run(name, func(t *testing.T) { check(t, cluster) })
	}
}

func keysAreWhereTheirSlotIs(t *testing.T, cluster *servers.RedisCluster) {
	var seen calls
	c := openCluster(t, cluster, func(c *redis.Config) { c.OnCall = seen.add })
	if n := len(c.Servers()); n != 3 {
		t.Fatalf("%d masters, want 3", n)
	}
	for i := range 30 {
		key := fmt.Sprint("where", i)
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

// slotsShareABatch: one pipeline with a run for each slot.
func slotsShareABatch(t *testing.T, cluster *servers.RedisCluster) {
	var seen calls
	c := openCluster(t, cluster, func(c *redis.Config) { c.OnCall = seen.add })
	home := c.Servers()[0]
	var all []*redis.Pending
	for i := 0; len(all) < 20; i++ {
		if key := fmt.Sprint("share", i); c.Server(key) == home {
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

// requestsBeforeTheSlotsAreKnown wait for them.
func requestsBeforeTheSlotsAreKnown(t *testing.T, cluster *servers.RedisCluster) {
	cfg := at(redis.Cluster, cluster.Addrs()[0])
	cfg.Silence = time.Minute
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	other := open(t, cfg)
	if got, err := other.Run(t.Context(), "a", "GET", "a"); got != "1" || err != nil {
		t.Errorf("a cold command: %v, %v", got, err)
	}
}

func TestAClusterThatIsAway(t *testing.T) {
	c := open(t, at(redis.Cluster, servers.FreeAddr(t), servers.FreeAddr(t)))
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

// alone is a forger that is a cluster of one server, which sends requests to another address.
func alone(t *testing.T, redirect func() string) *redis.Client {
	t.Helper()
	forger := servers.StartForger(t, servers.StartRedis(t))
	host, port, _ := net.SplitHostPort(forger.Addr)
	forger.Set(func(words []string) []byte {
		switch words[0] {
		case "CLUSTER":
			return fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$2\r\nid\r\n", len(host),
				host, port)
		case "EVALSHA":
			return []byte(redirect() + "\r\n")
		}
		return nil
	})
	c := open(t, at(redis.Cluster, forger.Addr))
	c.Ready(t.Context())
	return c
}

// TestAServerIsNotBlamedForAnother: the one that requests are sent on to cannot be reached, and the one that answers is
// well.
func TestAServerIsNotBlamedForAnother(t *testing.T) {
	away := servers.FreeAddr(t)
	c := alone(t, func() string { return "-MOVED 3999 " + away })
	for range 20 {
		wantFault(t, c, redis.ReasonDial, false)
	}
	if stateOf(c) != breaker.Closed {
		t.Errorf("the breaker of the server that answers is %s", stateOf(c))
	}
}

// TestRedirectsInACircle end.
func TestRedirectsInACircle(t *testing.T) {
	var c *redis.Client
	var asked atomic.Int64
	c = alone(t, func() string {
		asked.Add(1)
		return "-MOVED 3999 " + c.Server("a").Name()
	})
	wantFault(t, c, redis.ReasonCluster, false)
	if asked.Load() != 4 {
		t.Errorf("it was sent %d times, want 4", asked.Load())
	}
}

// TestRedirectsThatNameNothing are the reply.
func TestRedirectsThatNameNothing(t *testing.T) {
	replies := []string{
		"-MOVED", "-MOVED 1", "-MOVED 1 2 3", "-MOVED x y", "-ASK 1 :", "-MOVED 1 :::", "-MOVED 1 [::", "-TRYAGAIN",
	}
	var next atomic.Int64
	c := alone(t, func() string { return replies[next.Load()] })
	for range replies {
		wantFault(t, c, redis.ReasonCluster, false)
		next.Add(1)
	}
}
