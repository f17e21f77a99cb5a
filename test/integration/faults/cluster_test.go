package faults

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// clusterRows are the faults of a Redis Cluster.
var clusterRows = []row{
	{id: "X11", fault: "cluster: kill -9 one master", short: 7 * time.Second, full: 8 * time.Second, run: beheaded},
	{id: "X12", fault: "cluster: 1,000 slots move", full: 5 * time.Second, run: resharded},
	{id: "X13a", fault: "cluster: two masters of three gone", full: 10 * time.Second, run: minority},
	{id: "X13b", fault: "CLUSTERDOWN: a slot without a master", full: 10 * time.Second, run: uncovered},
}

// startCluster starts a cluster, and the sidecar under load.
func (x *trial) startCluster(settings ...string) *servers.RedisCluster {
	x.Helper()
	c := servers.StartCluster(x, settings...)
	x.counters = func() map[int]int64 {
		used := map[int]int64{}
		for _, master := range c.Masters(x) {
			maps.Copy(used, usedBy(x, x.straight(master)))
		}
		return used
	}
	x.startSidecar("REDIS_TYPE=cluster", "REDIS_URL="+strings.Join(c.Addrs(), ","))
	x.settle()
	return c
}

// homes is which master holds each key while the load runs. Those with a short window come and go, so it may take some
// looks.
func (x *trial) homes(c *servers.RedisCluster) map[int]*servers.Redis {
	x.Helper()
	at := map[int]*servers.Redis{}
	servers.Await(x, "a counter for each key", func() error {
		x.look(c, at)
		for key := range keys {
			if at[key] == nil {
				return fmt.Errorf("key %d has none", key)
			}
		}
		return nil
	})
	return at
}

// look adds the homes of the counters that are there now.
func (x *trial) look(c *servers.RedisCluster, at map[int]*servers.Redis) {
	x.Helper()
	for _, master := range c.Masters(x) {
		for _, name := range x.straight(master).Keys(context.Background(), "rl1:*").Val() {
			if number := keyNumber.FindStringSubmatch(name); number != nil {
				key, _ := strconv.Atoi(number[1])
				at[key] = master
			}
		}
	}
}

// beheaded is a shard that loses its master: its replica takes over, and other shards are not disturbed.
func beheaded(x *trial) {
	c := x.startCluster()
	scarce := x.exhaust()
	home := x.homes(c)
	victim := c.Nodes[0]
	hit := func(key int) bool { return home[key] == victim }
	x.during(func() { victim.Kill(x) }, func() { victim.Start(x); c.Settle(x) })
	x.replaced(scarce, 1, hit)
	x.recovers(6 * time.Second)
	x.opens(opensWithin)
	x.late(0.01)
	x.patient(0.01)
	x.undisturbed("of other shards", func(a *answer) bool { return !hit(a.key) })
}

// resharded moves slots with their counters from one master to another: redirects are followed, and nothing gets lost.
func resharded(x *trial) {
	c := x.startCluster()
	before := x.homes(c)
	x.during(func() {
		for range 100 { // not at once: that is two busy servers more than slots that move
			c.MoveSlots(x, c.Nodes[0], c.Nodes[1], 10)
			pass(x.length / 200)
		}
	}, func() {})
	x.common()
	x.late(0.01)
	x.keepsClosed()
	x.undisturbed("while slots moved", func(*answer) bool { return true })
	after, moved := maps.Clone(before), 0
	x.look(c, after)
	for key, at := range after {
		if at != before[key] {
			moved++
		}
	}
	x.note("%d counters moved", moved)
	if moved == 0 {
		x.fails("no counter moved")
	}
}

// minority is a cluster with one of three masters left. It refuses its keys when it finds itself alone; the others are
// not there.
func minority(x *trial) {
	c := x.startCluster("--appendonly", "yes", "--appendfsync", "no")        // counters outlive the nodes
	gone := []*servers.Redis{c.Nodes[3], c.Nodes[4], c.Nodes[0], c.Nodes[1]} // replicas first: they must not take over
	x.outage(func() {
		for _, node := range gone {
			node.Kill(x)
		}
	}, func() {
		for i := range gone {
			gone[len(gone)-1-i].Start(x)
		}
		x.awaitCluster(c)
	})
	x.alarmNames("cluster")
}

// uncovered is a cluster that refuses all keys because a slot lacks a master, though all its servers live.
func uncovered(x *trial) {
	c := x.startCluster("--cluster-require-full-coverage", "yes")
	slot := x.emptySlot(c, c.Nodes[0])
	x.outage(func() {
		for _, node := range c.Nodes { // the owner first: the others would learn it from it again
			node.Do(x, "CLUSTER", "DELSLOTS", slot)
		}
	}, func() {
		c.Nodes[0].Do(x, "CLUSTER", "ADDSLOTS", slot)
		x.awaitCluster(c)
	})
	x.alarmNames("cluster")
}

// emptySlot is a slot of a master that holds none of the counters.
func (x *trial) emptySlot(c *servers.RedisCluster, master *servers.Redis) string {
	x.Helper()
	for _, slot := range c.Slots(x, master) {
		name := strconv.Itoa(slot)
		if master.Do(x, "CLUSTER", "COUNTKEYSINSLOT", name) == int64(0) {
			return name
		}
	}
	x.Fatalf("every slot of %s holds a counter", master.Addr)
	return ""
}

// awaitCluster waits until the masters find the cluster well.
func (x *trial) awaitCluster(c *servers.RedisCluster) {
	x.Helper()
	for _, node := range c.Nodes[:3] {
		client := x.straight(node)
		servers.Await(x, "the cluster to be well", func() error {
			info, err := client.ClusterInfo(context.Background()).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok") {
				err = fmt.Errorf("%s reports\n%s", node.Addr, info)
			}
			return err
		})
	}
}
