package redis_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func openSentinels(t *testing.T, s *servers.Sentinels, change func(*redis.Config)) *redis.Client {
	t.Helper()
	cfg := at(redis.Sentinel, s.Addrs()...)
	cfg.Master = s.Master
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

// watch is a sentinel that names a master of an epoch.
func watch(t *testing.T, master func() (address string, epoch int64)) string {
	t.Helper()
	forger := servers.StartForger(t, servers.StartRedis(t))
	forger.Set(func(words []string) []byte {
		if words[0] != "SENTINEL" && words[0] != "sentinel" {
			return nil
		}
		address, epoch := master()
		host, port, _ := net.SplitHostPort(address)
		if strings.EqualFold(words[1], "get-master-addr-by-name") {
			return fmt.Appendf(nil, "*2\r\n+%s\r\n+%s\r\n", host, port)
		}
		return fmt.Appendf(nil, "*2\r\n+config-epoch\r\n+%d\r\n", epoch)
	})
	return forger.Addr
}

// TestASentinelThatIsCutOffIsNotBelieved: it keeps naming the master of before the failover.
func TestASentinelThatIsCutOffIsNotBelieved(t *testing.T) {
	old, fresh := servers.StartRedis(t), servers.StartRedis(t)
	var epoch atomic.Int64
	epoch.Store(5)
	cfg := at(redis.Sentinel, watch(t, func() (string, int64) { return old.Addr, 4 }),
		watch(t, func() (string, int64) { return fresh.Addr, epoch.Load() }))
	cfg.Master = "m"
	c := open(t, cfg)
	home := func() any {
		server := fresh
		if epoch.Load() < 4 {
			server = old
		}
		must.Get(c.Run(t.Context(), "a", "SET", "home", fmt.Sprint(epoch.Load())))(t)
		return server.Do(t, "GET", "home")
	}
	servers.Await(t, "the new master", func() error {
		if got := home(); got != "5" {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
	for range 20 { // each time over a new connection
		fresh.Do(t, "CLIENT", "KILL", "TYPE", "normal")
		fresh.Do(t, "DEL", "home")
		if got := home(); got != "5" {
			t.Fatalf("the former master is used again: %v", got)
		}
	}
	epoch.Store(3) // all were set up anew
	servers.Await(t, "the master that all sentinels know", func() error {
		if got := home(); got != "3" {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
}

// TestAServerThatBecomesAReplica: its connections are not used again, for they may lead to the former master.
func TestAServerThatBecomesAReplica(t *testing.T) {
	master, server := servers.StartRedis(t), servers.StartRedis(t)
	host, port, _ := net.SplitHostPort(master.Addr)
	c := open(t, at(redis.Single, server.Addr))
	wantCount(t, c, "a", 1)
	servers.Await(t, "spare connections", func() error {
		if s := statsOf(c); s.Idle < 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	opened := statsOf(c).Opened
	server.Do(t, "REPLICAOF", host, port)
	wantFault(t, c, redis.ReasonReadonly, false)
	server.Do(t, "REPLICAOF", "NO", "ONE")
	recovers(t, c)
	if now := statsOf(c).Opened; now == opened {
		t.Error("an old connection was used")
	}
}
