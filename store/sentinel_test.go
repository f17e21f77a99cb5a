package store

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// sharedSentinels are a master, its replicas and sentinels that outlive a test. All of them want passwords.
type sharedSentinels struct {
	*servers.Sentinels
	host testing.TB // ends servers that are started again, when it ends
}

const (
	serverPassword   = "sesame"
	sentinelPassword = "who goes there"
)

// open opens a store by the address of one sentinel only; it learns of the others.
func (s sharedSentinels) open(t *testing.T, config RedisConfig) (*Redis, limit.Charge) {
	t.Helper()
	config.Servers = Servers{
		Kind: Sentinel, Addresses: s.Addrs()[:1], Master: s.Master, Password: serverPassword,
		Sentinels: func() (string, string) { return "", sentinelPassword },
	}
	config.Budget, config.DenialEntries = steady, -1
	r := openRedis(t, config)
	c := charge(t, "k", bucket(1_000_000, year), 1)
	awaitAllowed(t, r, c)
	return r, c
}

// TestSentinel shares its processes, since they take long to start.
func TestSentinel(t *testing.T) {
	t.Parallel() // it mostly waits
	s := sharedSentinels{servers.StartGuardedSentinels(t, sentinelPassword, "--requirepass", serverPassword), t}
	for _, step := range []struct {
		name string
		test func(t *testing.T, s sharedSentinels)
	}{
		{"a planned failover", plannedFailover},
		{"the master dies, and the sentinel that was asked hangs", masterDiesUnderAHungSentinel},
		{"all sentinels hang", sentinelsHang},
		{"all sentinels die, and the master changes", sentinelsDie},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, s) })
	}
}

// watchOne watches over one counter.
func watchOne(t *testing.T, r *Redis, c limit.Charge) *watch {
	t.Helper()
	w := watchOver(t, r, func(int) []limit.Charge { return []limit.Charge{c} })
	w.awaitDecided(t, 50)
	return w
}

// plannedFailover also waits until the old master is a replica, which refuses to write.
func plannedFailover(t *testing.T, s sharedSentinels) {
	var b trips
	r, c := s.open(t, RedisConfig{OnBreaker: b.note})
	w := watchOne(t, r, c)
	old := s.Current(t)
	s.Failover(t)
	s.AwaitFailover(t, old)
	switched := time.Now()
	w.awaitDecided(t, 100)
	s.AwaitReplica(t, old)
	w.awaitDecided(t, 100)
	w.end()
	_, lost := w.seen()
	took := max(w.lastLost().Sub(switched), 0)
	t.Logf("lost %v until %v after the switch", lost, took)
	if took > time.Second || lost[ReasonReadonly] > 0 || len(b.names()) > 0 {
		t.Errorf("undecided calls %v until %v after the switch, breakers opened %v; want none after 1 s, none by a replica, no breaker", lost, took, b.names())
	}
}

// asked is the sentinel that the store listens to.
func (s sharedSentinels) asked(t *testing.T) *servers.Redis {
	t.Helper()
	var asked *servers.Redis
	servers.Await(t, "the store to listen to a sentinel", func() error {
		for _, w := range s.Watch {
			if strings.Contains(fmt.Sprint(w.Do(t, "CLIENT", "LIST")), "sub=2 ") {
				asked = w
				return nil
			}
		}
		return errNotYet
	})
	return asked
}

func masterDiesUnderAHungSentinel(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	w := watchOne(t, r, c)
	hung, old := s.asked(t), s.Current(t)
	hung.Hang(t)
	old.Kill(t)
	killed := time.Now()
	w.awaitLost(t)
	w.awaitDecided(t, 200)
	if took := w.lastLost().Sub(killed); took > 5*time.Second {
		t.Errorf("undecided for %v after the master was killed, want at most 5 s", took)
	} else {
		t.Logf("recovered %v after the kill", took)
	}
	if state := r.Breaker(); state != breaker.Closed {
		t.Errorf("the breaker is %v with a new master", state)
	}
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the sentinel: %v", err)
	}
	old.Start(s.host)
	s.AwaitReplica(t, old)
	w.awaitDecided(t, 50)
}

// dropClients closes all connections of the store to the master, so that it needs new ones.
func dropClients(t *testing.T, master *servers.Redis) {
	t.Helper()
	look(t, master, redis.Options{Password: serverPassword}).do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
}

// wantNewConnections wants calls to be decided on connections that are made while no sentinel answers.
func wantNewConnections(t *testing.T, s sharedSentinels, r *Redis, c limit.Charge, master *servers.Redis) {
	t.Helper()
	watchOne(t, r, c).wantNoneLost(t)
	misses := r.Stats().PoolMisses
	dropClients(t, master)
	watchOne(t, r, c).wantNoneLost(t)
	if r.Stats().PoolMisses == misses {
		t.Error("no new connection was made")
	}
}

func sentinelsHang(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	master := s.Current(t)
	for _, w := range s.Watch {
		w.Hang(t)
	}
	wantNewConnections(t, s, r, c, master)
	for _, w := range s.Watch {
		if err := w.Signal(syscall.SIGCONT); err != nil {
			t.Fatalf("wake a sentinel: %v", err)
		}
	}
}

// sentinelsDie: the last master is kept. When an operator makes another one it refuses to write, and when the sentinels are back
// they name the new one.
func sentinelsDie(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	old := s.Current(t)
	for _, w := range s.Watch {
		w.Kill(t)
	}
	wantNewConnections(t, s, r, c, old)
	fresh := s.Servers[0]
	if fresh == old {
		fresh = s.Servers[1]
	}
	host, port, _ := net.SplitHostPort(fresh.Addr)
	fresh.Do(t, "REPLICAOF", "NO", "ONE")
	old.Do(t, "REPLICAOF", host, port)
	wantUndecided(t, r, c, ReasonReadonly)
	for _, w := range s.Watch {
		w.Start(s.host)
		w.Do(t, "SENTINEL", "REMOVE", s.Master)
		w.Do(t, "SENTINEL", "MONITOR", s.Master, host, port, "2")
		w.Do(t, "SENTINEL", "SET", s.Master, "auth-pass", serverPassword)
	}
	start := time.Now()
	awaitAllowed(t, r, c)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("undecided for %v after the sentinels were back, want at most 2 s", took)
	}
	watchOne(t, r, c).wantNoneLost(t)
}
