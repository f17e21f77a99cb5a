package store

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// signpost is a path that leads to a server's socket, as a name or a load balancer would, and can be made to lead to another's. Connections
// stay where they are.
type signpost struct{ path string }

func setSignpost(t *testing.T, to *servers.Redis) signpost {
	t.Helper()
	s := signpost{filepath.Join(t.TempDir(), "to")}
	s.turn(t, to)
	return s
}

func (s signpost) turn(t *testing.T, to *servers.Redis) {
	t.Helper()
	fresh := s.path + ".new"
	if err := os.Symlink(to.Socket, fresh); err != nil {
		t.Fatalf("make a signpost: %v", err)
	}
	if err := os.Rename(fresh, s.path); err != nil {
		t.Fatalf("turn the signpost: %v", err)
	}
}

// openBehind opens a store behind a signpost and makes it open all connections that it may.
func openBehind(t *testing.T, s signpost, config RedisConfig) (*Redis, limit.Charge) {
	t.Helper()
	config.Network, config.Addresses = "unix", []string{s.path}
	config.Budget, config.DenialEntries = steady, -1
	r := openRedis(t, config)
	c := charge(t, "k", bucket(1_000_000, year), 1)
	awaitAllowed(t, r, c)
	servers.Await(t, "all connections", func() error { return notYet(r.Stats().Fleet.Connections >= 4) })
	return r, c
}

// follow makes a server a replica of another one.
func follow(t *testing.T, server, master *servers.Redis) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	server.Do(t, "REPLICAOF", host, port)
}

// TestAnotherMasterBehindTheAddress lets the address lead to a new master while the old one lives on as its replica and keeps the
// connections: no call is lost to them.
func TestAnotherMasterBehindTheAddress(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Single, fleet.Ring} {
		t.Run(kind.String(), func(t *testing.T) {
			var b trips
			old, fresh := servers.StartRedis(t), servers.StartRedis(t)
			sign := setSignpost(t, old)
			r, c := openBehind(t, sign, RedisConfig{Servers: fleet.Servers{Kind: kind}, OnBreaker: b.note})
			w := watchOne(t, r, c)
			sign.turn(t, fresh)
			follow(t, old, fresh)
			wantShortFailover(t, w)
			if got := b.names(); len(got) > 0 {
				t.Errorf("breakers that opened: %v", got)
			}
		})
	}
}

// TestAReplicaThatStaysOne: its breaker opens, it is not stormed with connections, and once the address leads to a master again the
// next probe finds that.
func TestAReplicaThatStaysOne(t *testing.T) {
	server, other := servers.StartRedis(t), servers.StartRedis(t)
	sign := setSignpost(t, server)
	r, c := openBehind(t, sign, RedisConfig{})
	w := watchOne(t, r, c)
	follow(t, server, other)
	before := connections(t, server)
	const periods = 3
	servers.Await(t, "a breaker that opens again and again", func() error {
		return notYet(r.Stats().Shards[0].Breaker.Opened >= periods)
	})
	if n := connections(t, server) - before; n > periods*20 {
		t.Errorf("%d connections were made while it was asked %d times, want at most 20 each time", n, periods)
	} else {
		t.Logf("%d connections", n)
	}
	sign.turn(t, other)
	wantFoundByAProbe(t, r, w)
}

// wantFoundByAProbe wants a server that is well now to be found: by the next probe, or by one after it where no processor is idle.
func wantFoundByAProbe(t *testing.T, r *Redis, w *watch) {
	t.Helper()
	before, well := r.Stats().Shards[0].Breaker.Opened, time.Now()
	w.awaitDecided(t, 200)
	opened := r.Stats().Shards[0].Breaker.Opened - before
	t.Logf("recovered after %v, the breaker opened %d times meanwhile", w.lastLost().Sub(well), opened)
	if opened > 3 {
		t.Errorf("%d probes of a server that is well failed, want 3 at most", opened)
	}
}

// connections is how many a server has taken so far.
func connections(t *testing.T, server *servers.Redis) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(fmt.Sprint(server.Do(t, "INFO", "stats"))) {
		fmt.Sscanf(line, "total_connections_received:%d", &n)
	}
	return n
}
