package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// wantUnknown spends once in vain, and wants to be told whether it may have been charged all the same.
func wantUnknown(t *testing.T, r *Redis, c limit.Charge, unknown bool) {
	t.Helper()
	before := r.Stats().Unknown
	d := spend(r, c)[0]
	if d.Outcome != limit.Undecided || d.Unknown != unknown || r.Stats().Unknown > before != unknown {
		t.Fatalf("decision %+v, and %d more counted as unknown; want undecided, unknown: %v", d, r.Stats().Unknown-before, unknown)
	}
}

// TestWhatWasNotSentIsNotUnknown: where the call never got to the server, nothing was charged.
func TestWhatWasNotSentIsNotUnknown(t *testing.T) {
	c := charge(t, "k", bucket(1000, year), 1)
	t.Run("dial refused", func(t *testing.T) {
		wantUnknown(t, openUnguarded(t, RedisConfig{Servers: Servers{Addresses: []string{servers.FreeAddr(t)}}}), c, false)
	})
	t.Run("dial hangs", func(t *testing.T) {
		r := openUnguarded(t, RedisConfig{Servers: Servers{Addresses: []string{crowded(t)}}, Budget: 50 * time.Millisecond})
		wantUnknown(t, r, c, false)
	})
	t.Run("black hole from the start", func(t *testing.T) {
		p := servers.StartProxy(t, servers.StartRedis(t).Addr)
		p.Set(servers.Fault{Mode: servers.BlackHole})
		r := openUnguarded(t, RedisConfig{Servers: Servers{Addresses: []string{p.Addr}}, Budget: 50 * time.Millisecond})
		for range 10 {
			wantUnknown(t, r, c, false)
		}
	})
	t.Run("open breaker", func(t *testing.T) {
		r := openRedis(t, RedisConfig{Servers: Servers{Addresses: []string{servers.FreeAddr(t)}}})
		for range 20 {
			wantUnknown(t, r, c, false)
		}
		wantUndecided(t, r, c, ReasonBreaker)
	})
	t.Run("replica", func(t *testing.T) {
		server := servers.StartRedis(t, "--replicaof", "127.0.0.1 1")
		wantUnknown(t, openUnguarded(t, RedisConfig{Servers: Servers{Addresses: []string{server.Addr}}}), c, false)
	})
}

// TestALostReplyIsUnknown also on a cluster, whose client looks at a command before it sends it.
func TestALostReplyIsUnknown(t *testing.T) {
	for name, mode := range map[string]servers.Mode{"dropped": servers.DropReplies, "reset": servers.ResetReplies, "half closed": servers.HalfClose} {
		t.Run(name, func(t *testing.T) {
			p, r := proxied(t, servers.StartRedis(t), RedisConfig{Budget: 100 * time.Millisecond})
			p.Set(servers.Fault{Mode: mode})
			wantUnknown(t, r, charge(t, "k", bucket(1000, year), 1), true)
		})
	}
}

// TestCallsThatWaitForABusyConnectionAreNotUnknown: of many calls to a server that hangs, one has the only connection.
func TestCallsThatWaitForABusyConnectionAreNotUnknown(t *testing.T) {
	server := servers.StartRedis(t)
	r := openUnguarded(t, RedisConfig{Servers: Servers{Addresses: []string{server.Addr}, PoolSize: 1, MinIdle: 1}, Budget: 200 * time.Millisecond})
	c := charge(t, "k", bucket(1000, year), 1)
	awaitAllowed(t, r, c)
	server.Hang(t)
	var lost, unknown atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			d := spend(r, c)[0]
			if d.Outcome == limit.Undecided {
				lost.Add(1)
			}
			if d.Unknown {
				unknown.Add(1)
			}
		})
	}
	all.Wait()
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the server: %v", err)
	}
	if lost.Load() != 8 || unknown.Load() != 1 || r.Stats().Unknown != 1 {
		t.Errorf("%d of 8 undecided, %d unknown, %d counted; want all, one, one", lost.Load(), unknown.Load(), r.Stats().Unknown)
	}
}

// TestCredentialsAreAskedForEachConnection: a password that is changed on the server, and then where the store reads it, is found without
// anybody's help.
func TestCredentialsAreAskedForEachConnection(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bob", "on", ">first", "+@all", "~*")
	var password atomic.Value
	password.Store("first")
	r := openRedis(t, RedisConfig{Servers: Servers{
		Addresses: []string{server.Addr}, Credentials: func() (string, string) { return "bob", password.Load().(string) },
	}})
	c := charge(t, "k", bucket(1000, year), 1)
	awaitAllowed(t, r, c)
	server.Do(t, "ACL", "SETUSER", "bob", ">second", "<first")
	server.Do(t, "CLIENT", "KILL", "USER", "bob")
	servers.Await(t, "the loss of the old password", func() error {
		if d := spend(r, c)[0]; d.Reason != ReasonNoAuth {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
	password.Store("second")
	start := time.Now()
	awaitAllowed(t, r, c)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the new password was found after %v", took)
	}
}
