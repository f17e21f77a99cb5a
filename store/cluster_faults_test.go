package store

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// byMaster is a charge for each master, on a counter in one of its slots.
func byMaster(t *testing.T, c sharedCluster) ([]*servers.Redis, []limit.Charge) {
	t.Helper()
	masters := c.Masters(t)
	var charges []limit.Charge
	for _, master := range masters {
		charges = append(charges, inSlots(t, c.Slots(t, master), "k", bucket(1_000_000, year)))
	}
	return masters, charges
}

// masterHangs for less than it takes to depose it. What was applied without an answer in time is answered late.
func masterHangs(t *testing.T, c sharedCluster) {
	r := openCluster(t, c, RedisConfig{Budget: 50 * time.Millisecond, DenialEntries: -1})
	masters, charges := byMaster(t, c)
	awaitAllowed(t, r, charges[1])
	before, unknown := awaitUsage(t, r, charges[1]), r.Stats().Unknown
	w := watchOver(t, r, func(int) []limit.Charge { return charges[1:2] })
	w.awaitDecided(t, 50)
	masters[1].Hang(t)
	w.awaitLost(t)
	servers.Await(t, "an open breaker", func() error { return notYet(r.Breaker() == breaker.Open) })
	if err := masters[1].Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the master: %v", err)
	}
	w.awaitDecided(t, 50)
	w.end()
	answered, lost := w.seen()
	applied := before - awaitUsage(t, r, charges[1])
	servers.Await(t, "the end of every call", func() error {
		return notYet(applied <= answered+r.Stats().Unknown-unknown+r.Stats().Late)
	})
	unknown = r.Stats().Unknown - unknown
	t.Logf("%d answered, %v lost, %d unknown, %d late, %d applied", answered, lost, unknown, r.Stats().Late, applied)
	if applied < answered || r.Stats().Late == 0 {
		t.Errorf("%d applied, %d of them late; want at least %d, and some late", applied, r.Stats().Late, answered)
	}
}

// awaitUsage waits until the server tells what is left.
func awaitUsage(t *testing.T, r *Redis, c limit.Charge) (left int64) {
	t.Helper()
	servers.Await(t, "what is left", func() error {
		d := usage(r, c)
		left = d.Remaining
		return notYet(d.Outcome == limit.Allowed)
	})
	return left
}

// masterIsDeposed hangs one for good. Who waited for a dial would wait for an hour.
func masterIsDeposed(t *testing.T, c sharedCluster) {
	r := openCluster(t, c, RedisConfig{Servers: fleet.Servers{DialTimeout: time.Hour}, DenialEntries: -1})
	masters, charges := byMaster(t, c)
	w := watchOver(t, r, func(int) []limit.Charge { return charges[:1] })
	w.awaitDecided(t, 50)
	masters[0].Hang(t)
	hung := time.Now()
	w.awaitLost(t)
	w.awaitDecided(t, 300)
	t.Logf("recovered %v after the hang", w.lastLost().Sub(hung))
	if err := masters[0].Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the master: %v", err)
	}
	c.Settle(t)
}

// masterDies: only its keys are undecided, until its replica has taken over.
func masterDies(t *testing.T, c sharedCluster) {
	var b trips
	r := openCluster(t, c, RedisConfig{OnBreaker: b.note, DenialEntries: -1, Budget: patient})
	masters, charges := byMaster(t, c)
	replica := c.ReplicaOf(t, masters[0])
	before := left(r, charges[1:])
	theirs := watchOver(t, r, func(i int) []limit.Charge { return charges[1+i%2 : 2+i%2] })
	own := watchOver(t, r, func(int) []limit.Charge { return charges[:1] })
	theirs.awaitDecided(t, 50)
	own.awaitDecided(t, 50)
	masters[0].Kill(t)
	killed := time.Now()
	own.awaitLost(t)
	own.awaitDecided(t, 300)
	t.Logf("recovered %v after the kill", own.lastLost().Sub(killed))
	own.end()
	theirs.wantNoneLost(t)
	if decided, _ := theirs.seen(); before-left(r, charges[1:]) != decided {
		t.Errorf("%d used on the other masters by %d calls", before-left(r, charges[1:]), decided)
	}
	if got := b.names(); got[masters[0].Addr] == 0 || len(got) != 1 {
		t.Errorf("breakers that opened: %v, want that of %s only", got, masters[0].Addr)
	}
	awaitShards(t, r, masters[1].Addr, masters[2].Addr, replica.Addr)
	masters[0].Start(c.host)
	c.Settle(t)
}

// awaitShards waits until these masters are all that are known, each well.
func awaitShards(t *testing.T, r *Redis, names ...string) {
	t.Helper()
	servers.Await(t, "masters that are well", func() error {
		known := map[string]breaker.State{}
		for _, s := range r.Stats().Shards {
			known[s.Name] = s.Breaker.State
		}
		for _, name := range names {
			if state, ok := known[name]; !ok || state != breaker.Closed {
				return fmt.Errorf("the breaker of %s is %v (known: %v), want closed", name, state, ok)
			}
		}
		if len(known) != len(names) || r.Breaker() != breaker.Closed {
			return fmt.Errorf("shards %v, the worst %v; want %v, closed", known, r.Breaker(), names)
		}
		if got := r.Ping(t.Context()); got != "" {
			return fmt.Errorf("ping says %q", got)
		}
		return nil
	})
}

// cover says whether the cluster is down when a slot is not served.
func cover(t *testing.T, c sharedCluster, full string) {
	t.Helper()
	for _, node := range c.Nodes {
		node.Do(t, "CONFIG", "SET", "cluster-require-full-coverage", full)
	}
}

// mostMastersDie: without a majority no replica takes over, and where all slots have to be served no master decides any more.
func mostMastersDie(t *testing.T, c sharedCluster) {
	cover(t, c, "yes")
	r := openCluster(t, c, RedisConfig{DenialEntries: -1})
	masters, charges := byMaster(t, c)
	w := watchOver(t, r, func(i int) []limit.Charge { return charges[i%3 : i%3+1] })
	w.awaitDecided(t, 50)
	masters[0].Kill(t)
	masters[1].Kill(t)
	servers.Await(t, "the cluster to be down", func() error {
		_, lost := w.seen()
		if lost[fleet.ReasonCluster] < 3 {
			return fmt.Errorf("lost %v", lost)
		}
		return nil
	})
	servers.Await(t, "an open breaker of the last master", func() error {
		for _, s := range r.Stats().Shards {
			if s.Name == masters[2].Addr && s.Breaker.State != breaker.Closed {
				return nil
			}
		}
		return fmt.Errorf("stats %+v", r.Stats().Shards)
	})
	late := openRedis(t, RedisConfig{Servers: fleet.Servers{Kind: fleet.Cluster, Addresses: []string{masters[0].Addr, masters[1].Addr}}, Budget: steady})
	for range 10 {
		wantUndecided(t, late, charges[0], fleet.ReasonDial, fleet.ReasonBreaker)
	}
	masters[0].Start(c.host)
	masters[1].Start(c.host)
	c.Settle(t)
	well := time.Now()
	w.awaitDecided(t, 300)
	t.Logf("recovered %v after the cluster was well again", w.lastLost().Sub(well))
	for _, charge := range append(charges, charges[0]) { // of a store that began while no server answered, the first one asks who holds it
		awaitAllowed(t, late, charge)
	}
	awaitShards(t, late, masters[0].Addr, masters[1].Addr, masters[2].Addr)
}

// slotNotServed takes one slot from a master: that slot is undecided, its others do not notice, and no breaker opens.
func slotNotServed(t *testing.T, c sharedCluster) {
	var b trips
	cover(t, c, "no")
	r := openCluster(t, c, RedisConfig{OnBreaker: b.note})
	masters, charges := byMaster(t, c)
	slot := fleet.SlotOf(charges[0].Key)
	other := inSlots(t, c.Slots(t, masters[0])[1:], "other", bucket(1_000_000, year))
	// Its owner first: as long as that claims the slot, the others take it down again.
	masters[0].Do(t, "CLUSTER", "DELSLOTS", strconv.Itoa(slot))
	for _, node := range c.Nodes {
		if node != masters[0] {
			node.Do(t, "CLUSTER", "DELSLOTS", strconv.Itoa(slot))
		}
	}
	w := watchOver(t, r, func(int) []limit.Charge { return []limit.Charge{other} })
	servers.Await(t, "the store to know", func() error {
		wantUndecided(t, r, charges[0], fleet.ReasonCluster)
		n, _ := r.main.Place(charges[0].Key)
		return notYet(n.Name() == "cluster")
	})
	known := r.nodes()
	for range 100 {
		wantUndecided(t, r, charges[0], fleet.ReasonCluster)
	}
	w.awaitDecided(t, 50)
	w.wantNoneLost(t)
	if got := b.names(); len(got) > 0 {
		t.Errorf("breakers opened: %v", got)
	}
	if now := r.nodes(); !slices.Equal(now, known) || len(now) != len(masters) {
		t.Errorf("%d masters with their breakers are %d others now, want the same %d", len(known), len(now), len(masters))
	}
	masters[0].Do(t, "CLUSTER", "ADDSLOTS", strconv.Itoa(slot))
	awaitAllowed(t, r, charges[0])
}
