package store

import (
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
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
	config.Servers = fleet.Servers{
		Kind: fleet.Sentinel, Addresses: s.Addrs()[:1], Master: s.Master, Password: serverPassword,
		Sentinels: func() (string, string) { return "", sentinelPassword },
	}
	config.Budget, config.DenialEntries = steady, -1
	r := openRedis(t, config)
	c := charge(t, "k", bucket(1_000_000, year), 1)
	// Sentinels that were just woken answer late, and calls without a connection would open the breaker.
	servers.Await(t, "a connection to the master", func() error { return notYet(r.Stats().Fleet.Connections > 0) })
	awaitAllowed(t, r, c)
	servers.Await(t, "a closed breaker", func() error { return notYet(r.Stats().Shards[0].Breaker.State == breaker.Closed) })
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
		{"a failover that is not told", unheardFailover},
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

// wantShortFailover wants calls to be decided again, and none to be undecided because of a replica.
func wantShortFailover(t *testing.T, w *watch) {
	t.Helper()
	w.awaitDecided(t, 100)
	w.end()
	_, lost := w.seen()
	t.Logf("lost %v during %v", lost, w.lostFor())
	if lost[fleet.ReasonReadonly] > 0 {
		t.Errorf("undecided calls %v, want none by a replica", lost)
	}
}

// plannedFailover also waits until the old master is a replica, which refuses to write.
func plannedFailover(t *testing.T, s sharedSentinels) {
	var b trips
	r, c := s.open(t, RedisConfig{OnBreaker: b.note})
	w := watchOne(t, r, c)
	old := s.Current(t)
	s.Failover(t)
	s.AwaitFailover(t, old)
	s.AwaitReplica(t, old)
	wantShortFailover(t, w)
	if got := b.names(); len(got) > 0 {
		t.Errorf("breakers that opened: %v", got)
	}
}

// unheardFailover: the sentinel that would tell of it hangs, so that the old master closes its connections is the first sign.
func unheardFailover(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	w := watchOne(t, r, c)
	hung, old := s.asked(), s.Current(t)
	others := slices.DeleteFunc(slices.Clone(s.Watch), func(w *servers.Redis) bool { return w == hung })
	hung.Hang(t)
	others[0].Do(t, "SENTINEL", "FAILOVER", s.Master)
	for _, other := range others { // they would take long to depose the old master
		other.Do(t, "SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "250")
	}
	e := look(t, old, redis.Options{Password: serverPassword})
	servers.Await(t, "the old master to be a replica", func() error {
		return notYet(strings.Contains(e.client.Info(t.Context(), "replication").Val(), "role:slave"))
	})
	wantShortFailover(t, w)
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the sentinel: %v", err)
	}
	s.AwaitFailover(t, old)
	s.AwaitReplica(t, old)
}

// asked is the sentinel that the store was told of.
func (s sharedSentinels) asked() *servers.Redis { return s.Watch[0] }

func masterDiesUnderAHungSentinel(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	w := watchOne(t, r, c)
	hung, old := s.asked(), s.Current(t)
	hung.Hang(t)
	old.Kill(t)
	killed := time.Now()
	w.awaitLost(t)
	w.awaitDecided(t, 200)
	t.Logf("recovered %v after the kill", w.lastLost().Sub(killed))
	if b := r.Stats().Shards[0].Breaker; b.State != breaker.Closed || b.Opened > 0 {
		t.Errorf("the breaker of the new master: %+v, want one that never opened", b)
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
	opened := r.Stats().Fleet.Opened
	dropClients(t, master)
	servers.Await(t, "a new connection", func() error { return notYet(r.Stats().Fleet.Opened > opened) })
	watchOne(t, r, c).wantNoneLost(t)
	if r.Stats().Fleet.Opened == opened {
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
// they name the new one. A store that was not asked meanwhile learns of it by a refusal, and asks the new one instead.
func sentinelsDie(t *testing.T, s sharedSentinels) {
	r, c := s.open(t, RedisConfig{})
	asleep, _ := s.open(t, RedisConfig{})
	old := s.Current(t)
	for _, w := range s.Watch {
		w.Kill(t)
	}
	wantNewConnections(t, s, r, c, old)
	watchOne(t, asleep, c).wantNoneLost(t)
	fresh := s.Servers[0]
	if fresh == old {
		fresh = s.Servers[1]
	}
	host, port, _ := net.SplitHostPort(fresh.Addr)
	fresh.Do(t, "REPLICAOF", "NO", "ONE")
	old.Do(t, "REPLICAOF", host, port)
	for range 10 {
		wantUndecided(t, r, c, fleet.ReasonReadonly, fleet.ReasonBreaker, fleet.ReasonTimeout)
	}
	for _, w := range s.Watch {
		w.Start(s.host)
		w.Do(t, "SENTINEL", "REMOVE", s.Master)
		w.Do(t, "SENTINEL", "MONITOR", s.Master, host, port, "2")
		w.Do(t, "SENTINEL", "SET", s.Master, "auth-pass", serverPassword)
	}
	wantShortFailover(t, watchOne(t, asleep, c))
	start := time.Now()
	awaitAllowed(t, r, c)
	t.Logf("recovered %v after the sentinels were back", time.Since(start))
	w := watchOne(t, r, c)
	w.awaitDecided(t, 100)
}
