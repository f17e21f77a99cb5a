package servers

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ClusterSlots is how many slots a Redis Cluster has.
const ClusterSlots = 16384

// RedisCluster is a Redis Cluster of three masters with a replica each, on loopback. A node is down after two seconds.
type RedisCluster struct {
	Nodes []*Redis // at the start the masters in the order of their slots, then their replicas in the same order
}

// StartCluster starts the six processes, stops them when the test ends, and waits until every node finds the cluster
// well. Slots without a master do not take the others down, unless the settings have --cluster-require-full-coverage
// yes. With --requirepass the replicas get the password.
func StartCluster(t testing.TB, settings ...string) *RedisCluster {
	t.Helper()
	settings = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no",
	}, replicating(settings)...)
	c := &RedisCluster{}
	for range 6 {
		c.Nodes = append(c.Nodes, startRedis(t, freeClusterAddr, &Redis{settings: settings}))
	}
	for i, master := range c.masters() {
		// Without an epoch of its own each, the masters would have to quarrel about it first.
		master.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		master.Do(t, append([]string{"CLUSTER", "ADDSLOTS"}, slotNames(i*ClusterSlots/3, (i+1)*ClusterSlots/3)...)...)
	}
	c.join(t)
	return c
}

// masters are the nodes that are masters at the start.
func (c *RedisCluster) masters() []*Redis { return c.Nodes[:len(c.Nodes)/2] }

// freeClusterAddr is FreeAddr for a node, which also needs the port 10000 above for talk among nodes.
func freeClusterAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := FreeAddr(t)
		host, text, _ := net.SplitHostPort(addr)
		port, _ := strconv.Atoi(text)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port+10000)))
		if err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no two free ports for a node of a cluster")
	return ""
}

// slotNames are the slots from the first to before the end, as words of a command.
func slotNames(first, end int) []string {
	var names []string
	for slot := first; slot < end; slot++ {
		names = append(names, strconv.Itoa(slot))
	}
	return names
}

// join makes a cluster of the nodes.
func (c *RedisCluster) join(t testing.TB) {
	t.Helper()
	for i, node := range c.Nodes {
		for _, other := range c.Nodes[:i] { // all pairs: word of mouth takes seconds
			host, port, _ := net.SplitHostPort(other.Addr)
			node.Do(t, "CLUSTER", "MEET", host, port)
		}
	}
	for i, master := range c.masters() {
		id := master.id(t)
		replica := c.Nodes[len(c.masters())+i]
		Await(t, "the replica of "+master.Addr, func() error {
			_, err := replica.tryDo("CLUSTER", "REPLICATE", id)
			return err
		})
	}
	Await(t, "all nodes to know the replicas", func() error {
		for _, node := range c.Nodes {
			nodes, err := node.text("CLUSTER", "NODES")
			if err != nil {
				return err
			}
			if strings.Count(nodes, "slave") != len(c.masters()) {
				return fmt.Errorf("%s knows others:\n%s", node.Addr, nodes)
			}
		}
		return nil
	})
	c.Settle(t)
}

// Settle waits until every living node finds the cluster well, with a living master for every slot, and the replicas
// have what their masters have.
func (c *RedisCluster) Settle(t testing.TB) {
	t.Helper()
	want := []string{"cluster_state:ok\r\n", fmt.Sprintf("cluster_slots_ok:%d\r\n", ClusterSlots),
		fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes))}
	Await(t, "the cluster to settle", func() error {
		for _, node := range c.living() {
			info, err := node.text("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(info, line) }) {
				return fmt.Errorf("%s reports\n%s", node.Addr, info)
			}
		}
		if _, err := c.owners(); err != nil {
			return err
		}
		err := agreed(c.living())
		if err != nil {
			return err
		}
		return linked(c.living())
	})
}

func (c *RedisCluster) living() []*Redis {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(r *Redis) bool { return !r.lives() })
}

// Addrs are the addresses of all nodes.
func (c *RedisCluster) Addrs() []string { return addrs(c.Nodes) }

// claim is what a node reports about itself.
type claim struct {
	id     string
	master string // the id of its master, "-" when it is one itself
	epoch  int    // of two masters that claim a slot, the one with the higher epoch owns it
	slots  []int  // ascending
}

// claim is what the node reports about itself.
func (r *Redis) claim() (claim, error) {
	all, myself, err := r.claims()
	if err == nil && myself == "" {
		err = fmt.Errorf("%s does not report itself", r.Addr)
	}
	return all[myself], err
}

// claims reads CLUSTER NODES, a line for each node: id, address, flags, master, ping, pong, epoch, link, slots. It
// returns what the node knows of each, by id, and its own id.
func (r *Redis) claims() (all map[string]claim, myself string, err error) {
	nodes, err := r.text("CLUSTER", "NODES")
	all = map[string]claim{}
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		if strings.Contains(f[2], "myself") {
			myself = f[0]
		}
		c := claim{id: f[0], master: f[3]}
		c.epoch, err = strconv.Atoi(f[6])
		for _, part := range f[8:] {
			if !strings.HasPrefix(part, "[") { // a slot on its way is still the old owner's
				c.slots = append(c.slots, slotsOf(part)...)
			}
		}
		all[c.id] = c
	}
	return all, myself, err
}

// agreed finds a node that knows of other slots of a master than that one. A replica that takes over claims those that
// it knows.
func agreed(nodes []*Redis) error {
	views := map[*Redis]map[string]claim{}
	own := map[string]claim{}
	for _, node := range nodes {
		all, myself, err := node.claims()
		if err != nil {
			return err
		}
		views[node], own[myself] = all, all[myself]
	}
	for node, all := range views {
		for id, c := range own {
			if !slices.Equal(all[id].slots, c.slots) {
				return fmt.Errorf("%s knows of %d slots of node %s, which has %d", node.Addr, len(all[id].slots), id,
					len(c.slots))
			}
		}
	}
	return nil
}

// slotsOf reads "7" or "7-9".
func slotsOf(part string) []int {
	first, last, several := strings.Cut(part, "-")
	if !several {
		last = first
	}
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	var all []int
	for slot := from; slot <= to; slot++ {
		all = append(all, slot)
	}
	return all
}

// owners returns for every slot the living master that owns it, or nil. The error is for the first slot without one.
func (c *RedisCluster) owners() ([]*Redis, error) {
	owners := make([]*Redis, ClusterSlots)
	epochs := make([]int, ClusterSlots)
	for _, node := range c.living() {
		says, err := node.claim()
		if err != nil {
			continue // it hangs, starts, or ends
		}
		for _, slot := range says.slots {
			if owners[slot] == nil || says.epoch > epochs[slot] {
				owners[slot], epochs[slot] = node, says.epoch
			}
		}
	}
	slot := slices.Index(owners, nil)
	if slot >= 0 {
		return owners, fmt.Errorf("slot %d lacks a living master", slot)
	}
	return owners, nil
}

// Masters are the masters in the order of their lowest slots. It waits until every slot has a living one.
func (c *RedisCluster) Masters(t testing.TB) []*Redis {
	t.Helper()
	var masters []*Redis
	Await(t, "a master for every slot", func() error {
		owners, err := c.owners()
		masters = nil
		for _, owner := range owners {
			if !slices.Contains(masters, owner) {
				masters = append(masters, owner)
			}
		}
		return err
	})
	return masters
}

// MasterOf is the owner of a slot. It waits until there is a living one.
func (c *RedisCluster) MasterOf(t testing.TB, slot int) *Redis {
	t.Helper()
	var master *Redis
	Await(t, fmt.Sprintf("a master for slot %d", slot), func() error {
		owners, err := c.owners()
		master = owners[slot]
		if master != nil {
			return nil
		}
		return err
	})
	return master
}

// ReplicaOf is a living replica of a master. It waits until there is one.
func (c *RedisCluster) ReplicaOf(t testing.TB, master *Redis) *Redis {
	t.Helper()
	id := master.id(t)
	var replica *Redis
	Await(t, "a replica of "+master.Addr, func() error {
		for _, node := range c.living() {
			says, err := node.claim()
			if err == nil && says.master == id {
				replica = node
				return nil
			}
		}
		return fmt.Errorf("no server is")
	})
	return replica
}

// Slots are the slots that a living node owns, ascending.
func (c *RedisCluster) Slots(t testing.TB, node *Redis) []int {
	t.Helper()
	var slots []int
	Await(t, "the slots of "+node.Addr, func() error {
		says, err := node.claim()
		slots = says.slots
		return err
	})
	return slots
}

// SlotOf is the slot of a key.
func (c *RedisCluster) SlotOf(t testing.TB, key string) int {
	t.Helper()
	slot, _ := c.living()[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64)
	return int(slot)
}

// id is the node's name in the cluster.
func (r *Redis) id(t testing.TB) string {
	t.Helper()
	return fmt.Sprint(r.Do(t, "CLUSTER", "MYID"))
}
