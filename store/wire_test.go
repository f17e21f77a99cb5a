package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestLostRepliesRunAtMostOnce holds the server's own count against the answers: what ran without an answer is at
// most what was unknown or came late, and nothing was answered that did not run.
func TestLostRepliesRunAtMostOnce(t *testing.T) {
	for name, fault := range map[string]servers.Fault{
		"dropped":       {Mode: servers.DropReplies, Share: 0.2},
		"reset":         {Mode: servers.ResetReplies, Share: 0.3},
		"half closed":   {Mode: servers.HalfClose, Share: 0.3},
		"held or reset": {Mode: servers.HoldOrReset, Share: 0.2, Delay: 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			p := servers.StartProxy(t, server.Addr)
			var late atomic.Int64 // decided after the caller had left
			r := open(t, RedisConfig{
				Main: unguarded(p.Addr, 50*time.Millisecond), DenialEntries: -1, Patience: 20 * time.Millisecond,
				OnLate: func(_ *limit.Request, err error) {
					if err == nil {
						late.Add(1)
					}
				},
			})
			c := charge(t, "k", bucket(1_000_000, year), 1)
			awaitAllowed(t, r, c)
			before, left := r.Stats().Calls, peekAside(t, server, c)
			p.Set(fault)
			answered, undecided := spendUntilUnknown(t, r, c)
			if err := r.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			s := r.Stats().Calls
			unknown, ran := s.Unknown-before.Unknown, left-peekAside(t, server, c)
			known := answered + late.Load()
			t.Logf("%d answered or late, %d undecided, %d unknown; %d ran", known, undecided, unknown, ran)
			if ran < known || ran > known+unknown {
				t.Errorf("%d ran, want %d that were answered or late, and at most %d more", ran, known, unknown)
			}
			if s.Undecided-before.Undecided != undecided {
				t.Errorf("%d are counted as undecided, want %d", s.Undecided-before.Undecided, undecided)
			}
		})
	}
}

// spendUntilUnknown spends until it is not known of one request whether it was charged.
func spendUntilUnknown(t *testing.T, r *Redis, c limit.Charge) (answered, undecided int64) {
	t.Helper()
	before := r.Stats().Calls.Unknown
	var decided, open atomic.Int64
	servers.Await(t, "a lost reply", func() error {
		crowd(200, func(int) {
			if spend(r, c)[0].Outcome == limit.Allowed {
				decided.Add(1)
			} else {
				open.Add(1)
			}
		})
		return notYet(r.Stats().Calls.Unknown > before)
	})
	return decided.Load(), open.Load()
}

// peekAside is what is left of a counter, asked on another way.
func peekAside(t *testing.T, server *servers.Redis, c limit.Charge) int64 {
	t.Helper()
	return peek(open(t, RedisConfig{Main: at(server.Addr)}), c).Remaining
}

// TestWhatWasNotSentIsNotUnknown: where the request never got to the server, nothing was charged.
func TestWhatWasNotSentIsNotUnknown(t *testing.T) {
	c := charge(t, "k", bucket(1000, year), 1)
	away, replica := servers.FreeAddr(t), servers.StartRedis(t, "--replicaof", "127.0.0.1 1")
	hole := servers.StartProxy(t, servers.StartRedis(t).Addr)
	hole.Set(servers.Fault{Mode: servers.BlackHole})
	for name, main := range map[string]*redis.Client{
		"dial refused": unguarded(away, patient), "open breaker": at(away), "replica": unguarded(replica.Addr, patient),
		"black hole from the start": client(redis.Config{
			Servers: redis.Servers{Addresses: []string{hole.Addr}, DialTimeout: 50 * time.Millisecond},
			Silence: 50 * time.Millisecond,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, RedisConfig{Main: main})
			for range 10 {
				if d := spend(r, c)[0]; d.Outcome != limit.Undecided || d.Unknown || d.Reason == "" {
					t.Fatalf("decided %+v, want undecided with a reason, and not unknown", d)
				}
			}
			if name == "open breaker" && (r.Breaker() != breaker.Open || spend(r, c)[0].Reason != redis.ReasonBreaker) {
				t.Errorf("the breaker is %v after ten failures", r.Breaker())
			}
		})
	}
}
