package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestAnObserverSeesEachCallAndHowItEnds(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	var seen []string
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, OnTrip: func(_ context.Context, shard string, charges int) func(string) {
		if shard != server.Addr {
			t.Errorf("a call to %q, want %q", shard, server.Addr)
		}
		return func(reason string) { seen = append(seen, fmt.Sprint(charges, " ", reason)) }
	}})
	one, bad := charge(t, "one", bucket(1, time.Hour), 1), charge(t, "bad", bucket(5, time.Hour), 1)
	e.do("SADD", bad.Key, "x")
	spend(r, one)
	spend(r, one) // refused by Redis
	spend(r, one) // refused by the cache of denials: no call
	spend(r, bad)
	if diff := cmp.Diff([]string{"1 ", "1 ", "1 " + fleet.ReasonWrong}, seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestAnObserverMayLookAway(t *testing.T) {
	server := servers.StartRedis(t)
	calls := 0
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, OnTrip: func(context.Context, string, int) func(string) {
		calls++
		return nil
	}})
	awaitAllowed(t, r, charge(t, "k", bucket(1000, time.Hour), 1))
	if calls == 0 {
		t.Error("no call was seen")
	}
}
