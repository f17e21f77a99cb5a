package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/test/servers"
)

const heartKey = "rl1:{live}:sidecars"

// openHearts opens stores that count each other.
func openHearts(t *testing.T, s fleet.Servers, n int) []*Redis {
	t.Helper()
	var all []*Redis
	for range n {
		r := NewRedis(RedisConfig{Servers: s, Heartbeat: heartKey, Budget: steady})
		t.Cleanup(func() { r.Close() })
		all = append(all, r)
	}
	return all
}

// wantLive waits until a store counts n sidecars, and notes how long that took.
func wantLive(t *testing.T, what string, r *Redis, n int) {
	t.Helper()
	start := time.Now()
	servers.Await(t, fmt.Sprintf("%s: %d live sidecars", what, n), func() error {
		if got := r.Live(allDomains); got != n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
	t.Logf("%s: %d live sidecars after %v", what, n, time.Since(start))
}

// wantLiveFor wants the number to stay. What is read after that time does not count.
func wantLiveFor(t *testing.T, what string, r *Redis, n int, d time.Duration) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < d; <-tick.C {
		if got := r.Live(allDomains); got != n && time.Since(start) < d {
			t.Fatalf("%s: %d live sidecars, want %d", what, got, n)
		}
	}
}

func TestSidecarsCountEachOther(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	all := openHearts(t, fleet.Servers{Addresses: []string{server.Addr}}, 4)
	for _, r := range all {
		wantLive(t, "after the start", r, 4)
	}
	if ttl := server.Do(t, "PTTL", heartKey).(int64); ttl <= 0 || ttl > deadAfter.Milliseconds() {
		t.Errorf("the key lives for %d ms, want at most %v", ttl, deadAfter)
	}
	wantLeaving(t, all, fleet.Servers{Addresses: []string{server.Addr}})
	server.Kill(t)
	wantLiveFor(t, "while the server is away", all[0], 3, 2500*time.Millisecond)
	server.Start(t)
	wantLiveFor(t, "when the server is back, empty", all[0], 3, 2500*time.Millisecond)
}

// wantLeaving closes the last one, which the first counts no longer. One that does not leave is counted for longer, each time. One that
// leaves may look like that for once, where no processor is idle: then another one comes and leaves.
func wantLeaving(t *testing.T, all []*Redis, s fleet.Servers) {
	t.Helper()
	n, last := len(all), all[len(all)-1]
	for range 5 {
		if err := last.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		left := time.Now()
		wantLive(t, "after one left", all[0], n-1)
		if time.Since(left) <= deadAfter-beatEvery {
			return
		}
		last = openHearts(t, s, 1)[0]
		wantLive(t, "with another one", all[0], n)
	}
	t.Error("five sidecars that left were counted as if they had died")
}

func TestASidecarThatDiesIsCountedForFiveSeconds(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	r := openHearts(t, fleet.Servers{Addresses: []string{server.Addr}}, 1)[0]
	wantLive(t, "alone", r, 1)
	e := look(t, server, redis.Options{})
	var shown time.Time // before it showed up: it is not dead before that and five seconds
	servers.Await(t, "another one", func() error {
		if r.Live(allDomains) == 2 {
			return nil
		}
		shown = time.Now()
		e.do("EVAL", beatScript, 1, heartKey, "short-lived", deadAfter.Milliseconds())
		return errNotYet
	})
	wantLiveFor(t, "with one that died", r, 2, time.Until(shown.Add(4*time.Second)))
	wantLive(t, "after it died", r, 1)
}

func TestNobodyKnownIsOne(t *testing.T) {
	for name, key := range map[string]string{"server away": heartKey, "not asked for": ""} {
		r := NewRedis(RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.FreeAddr(t)}}, Heartbeat: key})
		if n := r.Live(allDomains); n != 1 {
			t.Errorf("%s: %d live sidecars, want 1", name, n)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

func TestTheNumberOfSidecarsOutlivesAShard(t *testing.T) {
	t.Parallel() // it mostly waits
	config, shards := startRing(t, 3)
	all := openHearts(t, config, 3)
	wantLive(t, "on a ring", all[0], 3)
	shards[0].Kill(t)
	wantLiveFor(t, "without a shard", all[0], 3, 1500*time.Millisecond)
	all = append(all, openHearts(t, config, 1)...)
	wantLive(t, "one more without a shard", all[0], 4)
	all[1].Close()
	wantLive(t, "one less without a shard", all[0], 3)
	shards[0].Start(t)
	wantLiveFor(t, "with the shard, empty", all[0], 3, 1500*time.Millisecond)
}

// TestAHeartbeatThatIsForbiddenAlarms: the operator forgot a right, once a second.
func TestAHeartbeatThatIsForbiddenAlarms(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "+@all", "-zadd", "~*")
	var alarms atomic.Int64
	start := time.Now()
	r := NewRedis(RedisConfig{
		Servers: fleet.Servers{Addresses: []string{server.Addr}, Username: "bob", Password: "pw"}, Heartbeat: heartKey, Budget: patient,
		OnError: func(why string, _ error) {
			if why == fleet.ReasonNoPerm {
				alarms.Add(1)
			}
		},
	})
	defer r.Close()
	awaitAllowed(t, r, charge(t, "k", bucket(10, year), 1))
	servers.Await(t, "three alarms", func() error { return notYet(alarms.Load() >= 3) })
	if took := time.Since(start); took < 1500*time.Millisecond {
		t.Errorf("three alarms within %v, want one a second", took)
	}
}
