package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// everyKind is the servers of each kind at these addresses.
func everyKind(addresses ...string) map[string]RedisConfig {
	all := map[string]RedisConfig{}
	for k := fleet.Single; k <= fleet.Ring; k++ {
		all[k.String()] = RedisConfig{Servers: fleet.Servers{Kind: k, Addresses: addresses, Master: "limits"}}
	}
	second := all["single"]
	second.PerSecond = &fleet.Servers{Addresses: addresses[len(addresses)-1:]}
	all["with a second store"] = second
	return all
}

// TestCloseDuringAnOutage closes while no server answers at the addresses, or all connections hang.
func TestCloseDuringAnOutage(t *testing.T) {
	for outage, addresses := range map[string][]string{
		"refused": {servers.FreeAddr(t), servers.FreeAddr(t)}, "hangs": {crowded(t), crowded(t)}, "swallowed": {blackHole(t), blackHole(t)},
	} {
		for kind, config := range everyKind(addresses...) {
			t.Run(outage+"/"+kind, func(t *testing.T) {
				leavesNothing(t, func(t *testing.T) { closeUnderLoad(t, config) })
			})
		}
	}
}

// blackHole is an address where connections are taken and nothing is answered.
func blackHole(t *testing.T) string {
	t.Helper()
	p := servers.StartProxy(t, "127.0.0.1:1")
	p.Set(servers.Fault{Mode: servers.BlackHole})
	return p.Addr
}

func closeUnderLoad(t *testing.T, config RedisConfig) {
	config.Heartbeat = heartKey
	r := NewRedis(config)
	charges := []limit.Charge{charge(t, "a", bucket(10, year), 1), charge(t, "b", bucket(10, time.Second), 1)}
	w := watchOver(t, r, func(int) []limit.Charge { return charges })
	w.awaitLost(t)
	start := time.Now()
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("close took %v", time.Since(start))
	w.end()
	wantShutdown(t, r)
}

// wantShutdown wants calls to be undecided because the store is closed, without a trip.
func wantShutdown(t *testing.T, r *Redis) {
	t.Helper()
	a, b := charge(t, "a", bucket(10, year), 1), charge(t, "b", bucket(10, time.Second), 1)
	before := r.Stats().Trips
	for range 20 {
		wantUndecided(t, r, a, fleet.ReasonShutdown)
		if d := spend(r, a, b); d[1].Reason != fleet.ReasonShutdown || d[0].Unknown {
			t.Fatalf("decisions %+v of a closed store", d)
		}
		if d := usage(r, a); d.Reason != fleet.ReasonShutdown {
			t.Fatalf("usage %+v of a closed store", d)
		}
	}
	if n := r.Stats().Trips - before; n > 0 {
		t.Errorf("60 calls of a closed store made %d trips", n)
	}
}

// TestCloseUnderLoad closes while all is well. What was under way is decided or undecided, and then there is nothing left.
func TestCloseUnderLoad(t *testing.T) {
	ring, _ := startRing(t, 2)
	for name, config := range map[string]RedisConfig{
		"ring":                {Servers: ring},
		"with a second store": {Servers: fleet.Servers{Addresses: ring.Addresses[:1]}, PerSecond: &fleet.Servers{Addresses: ring.Addresses[1:]}},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t, func(t *testing.T) {
				config.Heartbeat, config.Budget = heartKey, patient
				r := NewRedis(config)
				var calls atomic.Int64
				full, empty := charge(t, "full", bucket(1_000_000, year), 1), charge(t, "empty", bucket(0, time.Second), 1)
				w := watchOver(t, r, func(int) []limit.Charge { calls.Add(1); return []limit.Charge{full, empty} })
				w.awaitDecided(t, 100)
				if err := r.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				w.end()
				wantShutdown(t, r)
			})
		})
	}
}

// What is returned while the store closes may begin to return more.
func TestErrandsBeginWhileCloseWaits(t *testing.T) {
	for range 2000 {
		h := newHoldings(&Redis{}, time.Now)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for h.calls.begin() {
					h.calls.done()
				}
			})
		}
		h.close() // it panicked with a sync.WaitGroup
		all.Wait()
	}
}
