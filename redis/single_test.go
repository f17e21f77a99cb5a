package redis_test

import (
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestARequestRunsItsScript(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(server.Addr))
	for want := range int64(3) {
		got, err := do(t, c, add("a"))
		if err != nil || !slices.Equal(got, []int64{7, want + 1}) {
			t.Fatalf("reply %v, %v; want [7 %d]", got, err, want+1)
		}
	}
}

func TestAColdCommand(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(server.Addr))
	got, err := c.Run(background(), "k", "GET", "k")
	if got != nil || err != nil {
		t.Fatalf("a missing value is %v, %v", got, err)
	}
	got, err = c.Run(background(), "k", "HSET", "k", "a", 1)
	if got != int64(1) || err != nil {
		t.Fatalf("HSET replied %v, %v", got, err)
	}
	if redis.Reason(c.Servers()[0].Ping(background())) != "" {
		t.Fatal("no ping")
	}
}
