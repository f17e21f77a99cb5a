package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

const liveKey = "rl1:{live}:sidecars"

// openLive opens stores that count each other.
func openLive(t *testing.T, n int, main func() *redis.Client) (all []*Redis) {
	t.Helper()
	for range n {
		all = append(all, open(t, RedisConfig{Main: main(), Heartbeat: liveKey}))
	}
	return all
}

// awaitLive waits until a store counts n sidecars of a domain.
func awaitLive(t *testing.T, what string, r *Redis, domain string, n int) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("%s: %d live sidecars of %q", what, n, domain), func() error {
		if got := r.Live(domain); got != n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

func TestSidecarsAreCountedByDomain(t *testing.T) {
	t.Parallel() // it mostly waits
	single, two := servers.StartRedis(t), startRing(t, 2)
	for name, main := range map[string]func() *redis.Client{
		"one server": func() *redis.Client { return at(single.Addr) }, "ring": func() *redis.Client {
			return ring(two...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := openLive(t, 4, main)
			all[0].Serve([]string{"shop"})
			all[1].Serve([]string{"shop", "search"})
			all[2].Serve([]string{"search"})
			awaitLive(t, "at the start", all[0], allDomains, 4)
			awaitLive(t, "at the start", all[0], "shop", 2)
			awaitLive(t, "at the start", all[1], "shop", 2)
			awaitLive(t, "at the start", all[2], "search", 2)
			awaitLive(t, "not known", all[2], "never loaded", 4)
			if err := all[1].Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			awaitLive(t, "one left", all[0], "shop", 1)
			all[2].Serve([]string{"shop"})
			awaitLive(t, "one has other rules", all[0], "shop", 2)
		})
	}
}

func TestASidecarThatDiesIsCountedNoMore(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	server.Do(t, "EVAL", beatScript, "1", liveKey, "short-lived", fmt.Sprint(deadAfter.Milliseconds()))
	r := openLive(t, 1, func() *redis.Client { return at(server.Addr) })[0]
	awaitLive(t, "with one that died", r, allDomains, 2)
	if ttl := server.Do(t, "PTTL", liveKey).(int64); ttl <= 0 || ttl > deadAfter.Milliseconds() {
		t.Errorf("the key lives for %d ms, want at most %v", ttl, deadAfter)
	}
	awaitLive(t, "after it died", r, allDomains, 1)
}

func TestManyDomainsAreCounted(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	all := openLive(t, 2, func() *redis.Client { return at(server.Addr) })
	var names []string
	for i := range 3*beatKeys + 1 {
		names = append(names, fmt.Sprintf("domain %d {x}", i))
	}
	all[0].Serve(names)
	all[1].Serve(names[1:])
	awaitLive(t, "the last of many", all[0], names[len(names)-1], 2)
	awaitLive(t, "the first of many", all[0], names[0], 1)
	if keys, want := server.Do(t, "DBSIZE").(int64), int64(len(names)+1); keys != want {
		t.Errorf("%d keys, want %d: one per domain, and one for all", keys, want)
	}
}

// TestTheLastNumberStaysWhileServersAreAway, and for as long afterwards as others need to show up.
func TestTheLastNumberStaysWhileServersAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heartbeat{}
		if n := (&Redis{heartbeat: h}).Live("shop"); n != 1 {
			t.Errorf("%d live sidecars while no number is known, want 1", n)
		}
		h.take(map[string]int64{allDomains: 3, "shop": 2})
		h.take(map[string]int64{})
		<-time.After(deadAfter - time.Millisecond)
		h.take(map[string]int64{allDomains: 1})
		wantNumbers(t, "while others may not have shown up", h, 3, 2)
		h.take(map[string]int64{allDomains: 4, "shop": 1})
		wantNumbers(t, "with one more", h, 4, 2)
		<-time.After(2 * time.Millisecond)
		h.take(map[string]int64{allDomains: 1})
		wantNumbers(t, "later", h, 1, 2)
	})
}

// TestAServerThatLostItsDataLowersNoNumber: the first sidecar that shows up again is not alone.
func TestAServerThatLostItsDataLowersNoNumber(t *testing.T) {
	r := open(t, RedisConfig{Main: at(servers.StartRedis(t).Addr), Heartbeat: liveKey})
	h := &heartbeat{store: r, id: "another"}
	h.take(map[string]int64{allDomains: 3})
	h.take(h.show(t.Context(), time.Second, deadAfter))
	wantNumbers(t, "from an empty server", h, 3, 0)
}

func wantNumbers(t *testing.T, what string, h *heartbeat, all, shop int64) {
	t.Helper()
	if got := *h.live.Load(); got[allDomains] != all || got["shop"] != shop {
		t.Errorf("%s: %v, want %d and %d of shop", what, got, all, shop)
	}
}

func TestAHeartbeatThatIsForbiddenAlarms(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "+@all", "-zadd", "~*")
	var alarms atomic.Int64
	main := client(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}, Username: "bob",
		Password: "pw"}})
	r := open(t, RedisConfig{Main: main, Heartbeat: liveKey, OnError: func(reason string, _ error) {
		if reason == redis.ReasonNoPerm {
			alarms.Add(1)
		}
	}})
	awaitAllowed(t, r, charge(t, "k", bucket(10, year), 1))
	servers.Await(t, "two alarms", func() error { return notYet(alarms.Load() >= 2) })
}

// TestAReplyThatIsNoCountIsRefused: not the script answered.
func TestAReplyThatIsNoCountIsRefused(t *testing.T) {
	for _, reply := range []any{nil, "3", []any{}, []any{int64(1)}, []any{int64(1), "2"}, []any{int64(1), int64(0)}} {
		live := map[string]int64{}
		if err := read(reply, []string{"a", "b"}, live); err == nil || live["b"] != 0 {
			t.Errorf("reply %v: counts %v, want it refused", reply, live)
		}
	}
}
