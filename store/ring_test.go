package store

import (
	"errors"
	"testing"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestALostShardKeepsItsKeys: its keys are undecided and go to no other shard, where they would have a fresh limit. The others do
// not notice.
func TestALostShardKeepsItsKeys(t *testing.T) {
	config, all := startRing(t, 3)
	var b trips
	r := openRedis(t, RedisConfig{Servers: config, Budget: steady, OnBreaker: b.note, DenialEntries: -1})
	var charges []limit.Charge
	for _, server := range all {
		c := onShard(t, r, server.Addr, bucket(1_000_000, year))
		awaitAllowed(t, r, c)
		charges = append(charges, c)
	}
	before := left(r, charges[1:])
	others := watchOver(t, r, func(i int) []limit.Charge { return charges[1+i%2 : 2+i%2] })
	all[0].Kill(t)
	servers.Await(t, "an open breaker", func() error {
		wantUndecided(t, r, charges[0], fleet.ReasonDial, fleet.ReasonClosed, fleet.ReasonBreaker, fleet.ReasonTimeout)
		if r.Breaker() == breaker.Closed {
			return errors.New("all are closed")
		}
		return nil
	})
	others.awaitDecided(t, 200)
	others.wantNoneLost(t)
	if got := b.names(); got[all[0].Addr] != 1 || len(got) != 1 {
		t.Errorf("breakers that opened: %v, want that of %s once", got, all[0].Addr)
	}
	for _, server := range all[1:] {
		if n := server.Do(t, "DBSIZE").(int64); n != 1 {
			t.Errorf("%d keys on %s, want its own", n, server.Addr)
		}
	}
	if decided, _ := others.seen(); before-left(r, charges[1:]) != decided {
		t.Errorf("%d used on the other shards by %d calls", before-left(r, charges[1:]), decided)
	}
	all[0].Start(t)
	awaitAllowed(t, r, charges[0])
}

// left is what is left on all counters together.
func left(r *Redis, charges []limit.Charge) (n int64) {
	for _, c := range charges {
		n += usage(r, c).Remaining
	}
	return n
}
