package redis_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

func openSentinels(t *testing.T, s *servers.Sentinels, change func(*redis.Config)) *redis.Client {
	t.Helper()
	cfg := redis.Config{Servers: redis.Servers{Kind: redis.Sentinel, Addresses: s.Addrs(), Master: s.Master}}
	if change != nil {
		change(&cfg)
	}
	return open(t, cfg)
}

func TestTheMasterThatSentinelsName(t *testing.T) {
	s := servers.StartGuardedSentinels(t, "watch", "--requirepass", "secret")
	c := openSentinels(t, s, func(c *redis.Config) {
		c.Password, c.Sentinels = "secret", func() (string, string) { return "", "watch" }
	})
	wantCount(t, c, "a", 1)
	if got := c.Servers(); len(got) != 1 || got[0].Name() != s.Master {
		t.Errorf("the servers are %v", got)
	}
}

// TestAFailoverThatIsOrdered: the former master lives on as a replica, and no connection to it is used.
func TestAFailoverThatIsOrdered(t *testing.T) {
	s := servers.StartSentinels(t)
	c := openSentinels(t, s, nil)
	wantCount(t, c, "a", 1)
	old := s.Servers[0]
	s.Failover(t)
	fresh := s.AwaitFailover(t, old)
	servers.Await(t, "an answer of the new master", func() error {
		_, err := do(t, c, add("b"))
		if err == nil && fresh.Do(t, "GET", "b") == nil {
			err = errors.New("the former master has the counter")
		}
		return err
	})
}

func TestAMasterThatDies(t *testing.T) {
	s := servers.StartSentinels(t)
	c := openSentinels(t, s, nil)
	wantCount(t, c, "a", 1)
	old := s.Servers[0]
	old.Kill(t)
	s.AwaitFailover(t, old)
	recovers(t, c)
	servers.Await(t, "a closed breaker", func() error {
		if stateOf(c) != breaker.Closed {
			return fmt.Errorf("it is %s", stateOf(c))
		}
		return nil
	})
}

// TestSentinelsThatAreAllGone: the master that they named last is used, also for new connections.
func TestSentinelsThatAreAllGone(t *testing.T) {
	s := servers.StartSentinels(t)
	c := openSentinels(t, s, nil)
	wantCount(t, c, "a", 1)
	for _, w := range s.Watch {
		w.Kill(t)
	}
	s.Servers[0].Do(t, "CLIENT", "KILL", "TYPE", "normal")
	wantCount(t, c, "a", 2)
	fresh := openSentinels(t, s, nil)
	wantFault(t, fresh, redis.ReasonDial, false)
}
