package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestNothingIsExecutedTwice holds the server's own count against the answers: what ran without an answer is at most
// what was unknown or came late, and nothing was answered that did not run.
func TestNothingIsExecutedTwice(t *testing.T) {
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
				OnLate: func(l Late) {
					if l.Err == nil {
						late.Add(1)
					}
				},
			})
			c := charge(t, "k", bucket(1_000_000, year), 1)
			awaitAllowed(t, r, c)
			before, left := r.Stats().Calls, peekAside(t, server, c)
			p.Set(fault)
			var answered, undecided atomic.Int64
			servers.Await(t, "a lost reply", func() error {
				crowd(200, func(int) {
					if spend(r, c)[0].Outcome == limit.Allowed {
						answered.Add(1)
					} else {
						undecided.Add(1)
					}
				})
				return notYet(r.Stats().Calls.Unknown > before.Unknown)
			})
			if err := r.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			s := r.Stats().Calls
			unknown, ran := s.Unknown-before.Unknown, left-peekAside(t, server, c)
			t.Logf("%d answered, %d undecided, %d of these unknown, %d late; %d ran", answered.Load(), undecided.Load(), unknown, late.Load(), ran)
			if ran < answered.Load()+late.Load() || ran > answered.Load()+late.Load()+unknown {
				t.Errorf("%d ran, want %d that were answered or late, and at most %d more", ran, answered.Load()+late.Load(), unknown)
			}
			if s.Undecided-before.Undecided != undecided.Load() {
				t.Errorf("%d are counted as undecided, want %d", s.Undecided-before.Undecided, undecided.Load())
			}
		})
	}
}

// peekAside is what is left of a counter, asked on another way.
func peekAside(t *testing.T, server *servers.Redis, c limit.Charge) int64 {
	t.Helper()
	return peek(open(t, RedisConfig{Main: at(server.Addr)}), c).Remaining
}
