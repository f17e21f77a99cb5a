package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// wantUnknown spends once in vain, and wants to be told whether it may have been charged all the same.
func wantUnknown(t *testing.T, r *Redis, c limit.Charge, unknown bool) {
	t.Helper()
	before := r.Stats().Unknown
	d := spend(r, c)[0]
	if d.Outcome != limit.Undecided || d.Unknown != unknown || !unknown && r.Stats().Unknown > before {
		t.Fatalf("decision %+v, and %d more counted as unknown; want undecided, unknown: %v", d, r.Stats().Unknown-before, unknown)
	}
	if unknown {
		servers.Await(t, "the loss of the reply", func() error { return notYet(r.Stats().Unknown == before+1) })
	}
}

// TestWhatWasNotSentIsNotUnknown: where the call never got to the server, nothing was charged.
func TestWhatWasNotSentIsNotUnknown(t *testing.T) {
	c := charge(t, "k", bucket(1000, year), 1)
	t.Run("dial refused", func(t *testing.T) {
		wantUnknown(t, openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.FreeAddr(t)}}}), c, false)
	})
	t.Run("dial hangs", func(t *testing.T) {
		r := openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{crowded(t)}}, Budget: 50 * time.Millisecond})
		wantUnknown(t, r, c, false)
	})
	t.Run("black hole from the start", func(t *testing.T) {
		p := servers.StartProxy(t, servers.StartRedis(t).Addr)
		p.Set(servers.Fault{Mode: servers.BlackHole})
		r := openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{p.Addr}}, Budget: 50 * time.Millisecond})
		for range 10 {
			wantUnknown(t, r, c, false)
		}
	})
	t.Run("open breaker", func(t *testing.T) {
		r := openRedis(t, RedisConfig{
			Servers: fleet.Servers{Addresses: []string{servers.FreeAddr(t)}}, Breaker: breaker.Config{Open: time.Hour, MaxOpen: 2 * time.Hour},
		})
		for range 20 {
			wantUnknown(t, r, c, false)
		}
		wantUndecided(t, r, c, fleet.ReasonBreaker)
	})
	t.Run("replica", func(t *testing.T) {
		server := servers.StartRedis(t, "--replicaof", "127.0.0.1 1")
		wantUnknown(t, openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}}), c, false)
	})
}

// TestALostReplyIsUnknown: at once where the connection is lost, and where it is silent, when it is given up.
func TestALostReplyIsUnknown(t *testing.T) {
	for name, mode := range map[string]servers.Mode{"dropped": servers.DropReplies, "reset": servers.ResetReplies, "half closed": servers.HalfClose} {
		t.Run(name, func(t *testing.T) {
			p, r := proxied(t, servers.StartRedis(t), RedisConfig{Budget: 100 * time.Millisecond})
			p.Set(servers.Fault{Mode: mode})
			wantUnknown(t, r, charge(t, "k", bucket(1000, year), 1), true)
		})
	}
}

// TestALateErrorIsUnknownOnlyIfTheScriptMayHaveRun: a server that does not know the script has charged nothing.
func TestALateErrorIsUnknownOnlyIfTheScriptMayHaveRun(t *testing.T) {
	for text, unknown := range map[string]bool{
		"NOSCRIPT No matching script. Please use EVAL.":         false,
		"READONLY You can't write against a read only replica.": false,
		"ERR user_script:1: attempt to index a nil value":       true,
	} {
		r, pending := new(Redis), make([]limit.Pending, 1)
		r.settle(new(outbound), []limit.Charge{charge(t, "k", bucket(1000, year), 1)}, pending, fleet.ReplyError(text))
		pending[0].Then(func(d limit.Decision) {
			if d.Outcome != limit.Undecided || d.Unknown != unknown || r.unknown.Load() > 0 != unknown {
				t.Errorf("%q: decision %+v, %d counted as unknown; want unknown: %v", text, d, r.unknown.Load(), unknown)
			}
		})
	}
}

// TestCredentialsAreAskedForEachConnection: a password that is changed on the server, and then where the store reads it, is found by
// itself.
func TestCredentialsAreAskedForEachConnection(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "ACL", "SETUSER", "bob", "on", ">first", "+@all", "~*")
	var password atomic.Value
	password.Store("first")
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{
		Addresses: []string{server.Addr}, Credentials: func() (string, string) { return "bob", password.Load().(string) },
	}})
	c := charge(t, "k", bucket(1000, year), 1)
	awaitAllowed(t, r, c)
	server.Do(t, "ACL", "SETUSER", "bob", ">second", "<first")
	server.Do(t, "CLIENT", "KILL", "USER", "bob")
	servers.Await(t, "the loss of the old password", func() error {
		if d := spend(r, c)[0]; d.Reason != fleet.ReasonNoAuth {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
	password.Store("second")
	awaitAllowed(t, r, c)
}
