package store

import (
	"fmt"
	"testing"

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
	if want := int64(len(names) + 1); keys != want {
		t.Errorf("%d keys, want %d: one per domain, and one for all", keys, want)
	}
}
