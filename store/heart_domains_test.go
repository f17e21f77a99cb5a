package store

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/test/servers"
)

// awaitLiveOf waits until a store counts n sidecars of a domain.
func awaitLiveOf(t *testing.T, what string, r *Redis, domain string, n int) {
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
	config, _ := startRing(t, 2)
	lone := servers.StartRedis(t)
	for name, s := range map[string]fleet.Servers{"one server": {Addresses: []string{lone.Addr}}, "ring": config} {
		all := openHearts(t, s, 4)
		all[0].Serve([]string{"shop"})
		all[1].Serve([]string{"shop", "search"})
		all[2].Serve([]string{"search"})
		awaitLiveOf(t, name, all[0], allDomains, 4)
		awaitLiveOf(t, name, all[0], "shop", 2)
		awaitLiveOf(t, name, all[1], "shop", 2)
		awaitLiveOf(t, name, all[2], "search", 2)
		awaitLiveOf(t, name+", not known", all[2], "never loaded", 4)
		all[1].Close()
		awaitLiveOf(t, name+", one left", all[0], "shop", 1)
		all[2].Serve([]string{"shop"})
		awaitLiveOf(t, name+", one has other rules", all[0], "shop", 2)
	}
}

// beatBefore is the heartbeat of the version that names no domains.
const beatBefore = `local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])`

// TestASidecarThatNamesNoDomainsCountsForEach holds a rolling upgrade to both counts: the old version counts every sidecar, and the new
// one counts the old ones in every domain.
func TestASidecarThatNamesNoDomainsCountsForEach(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	all := openHearts(t, fleet.Servers{Addresses: []string{server.Addr}}, 3)
	all[0].Serve([]string{"shop"})
	all[1].Serve([]string{"shop"})
	all[2].Serve([]string{"search"})
	awaitLiveOf(t, "before", all[0], "shop", 2)
	awaitLiveOf(t, "before", all[0], allDomains, 3)
	old := look(t, server, redis.Options{})
	old.do("EVAL", beatBefore, 1, heartKey, "old-1", deadAfter.Milliseconds())
	if got := fmt.Sprint(server.Do(t, "EVAL", beatBefore, "1", heartKey, "old-2", "5000")); got != "5" {
		t.Errorf("the old version counts %s sidecars, want all 5", got)
	}
	awaitLiveOf(t, "beside two old ones", all[0], "shop", 4)
	awaitLiveOf(t, "beside two old ones", all[2], "search", 3)
	if all[0].alike() {
		t.Error("all sidecars are said to know of leases, beside two that do not")
	}
	awaitLiveOf(t, "when those are gone", all[0], "shop", 2)
	if !all[0].alike() {
		t.Error("some sidecars are said not to know of leases, when all do")
	}
}

func TestManyDomainsAreCounted(t *testing.T) {
	t.Parallel() // it mostly waits
	server := servers.StartRedis(t)
	all := openHearts(t, fleet.Servers{Addresses: []string{server.Addr}}, 2)
	var names []string
	for i := range 3*heartKeys + 1 {
		names = append(names, fmt.Sprintf("domain %d {x}", i))
	}
	all[0].Serve(names)
	all[1].Serve(names[1:])
	last := names[len(names)-1]
	awaitLiveOf(t, "the last of many", all[0], last, 2)
	awaitLiveOf(t, "the first of many", all[0], names[0], 1)
	if ttl := server.Do(t, "PTTL", heartKey+":domain:"+last).(int64); ttl <= 0 || ttl > deadAfter.Milliseconds() {
		t.Errorf("the domain's key lives for %d ms, want at most %v", ttl, deadAfter)
	}
	keys := server.Do(t, "DBSIZE").(int64)
	if want := int64(len(names) + 3); keys != want {
		t.Errorf("%d keys, want %d: one per domain, and three", keys, want)
	}
}
