package redis_test

import (
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// follow subscribes to a channel. Gaps arrive as "gap".
func follow(t *testing.T, c *redis.Client) chan string {
	t.Helper()
	got := make(chan string, 100)
	t.Cleanup(c.Subscribe("news", func(text string) { got <- text }, func() { got <- "gap" }))
	return got
}

func wantNews(t *testing.T, got chan string, want string) {
	t.Helper()
	if text := <-got; text != want {
		t.Errorf("what came is %q, want %q", text, want)
	}
}

func publish(t *testing.T, s *redis.Server, text string) {
	t.Helper()
	must.Get(s.Run(t.Context(), "PUBLISH", "news", text))(t)
}

func TestASubscriptionIsMadeAgain(t *testing.T) {
	server := servers.StartRedis(t)
	c := open(t, at(redis.Single, server.Addr))
	got := follow(t, c)
	wantNews(t, got, "gap")
	publish(t, c.Servers()[0], "one")
	wantNews(t, got, "one")
	server.Kill(t)
	server.Start(t)
	wantNews(t, got, "gap")
	publish(t, c.Servers()[0], "two")
	wantNews(t, got, "two")
}

func TestEveryServerOfARingIsFollowed(t *testing.T) {
	c := open(t, at(redis.Ring, servers.StartRedis(t).Addr, servers.StartRedis(t).Addr))
	got := follow(t, c)
	wantNews(t, got, "gap")
	wantNews(t, got, "gap")
	for _, s := range c.Everywhere() {
		publish(t, s, s.Name())
		wantNews(t, got, s.Name())
	}
	for i := range 20 {
		key := string(rune('a' + i))
		if !slices.Contains(c.Servers(), c.Server(key)) {
			t.Errorf("%s has no place", key)
		}
		wantCount(t, c, key, 1)
	}
}

func newsOfACluster(t *testing.T, cluster *servers.RedisCluster) {
	c := openCluster(t, cluster, nil)
	got := follow(t, c)
	wantNews(t, got, "gap")
	for _, s := range c.Servers() {
		publish(t, s, s.Name())
		wantNews(t, got, s.Name())
	}
	if n := len(c.Everywhere()); n != 1 {
		t.Errorf("%d servers have a copy of their own", n)
	}
}
