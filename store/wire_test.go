package store

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// openUnguarded is openRedis without the breaker and the cache of denials, so that every call reaches the server.
func openUnguarded(t testing.TB, c RedisConfig) *Redis {
	t.Helper()
	c.Breaker.Disabled = true
	c.DenialEntries = -1
	return openRedis(t, c)
}

// proxied is a proxy in front of a server, and a store behind it that has been decided by.
func proxied(t *testing.T, server *servers.Redis, c RedisConfig) (*servers.Proxy, *Redis) {
	t.Helper()
	p := servers.StartProxy(t, server.Addr)
	c.Addresses = []string{p.Addr}
	r := openUnguarded(t, c)
	awaitAllowed(t, r, charge(t, "warm", bucket(1_000_000, year), 1))
	return p, r
}

// leavesNothing runs a part of a test and waits until all its goroutines and file descriptors are gone.
func leavesNothing(t *testing.T, part func(t *testing.T)) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	t.Run("run", part)
	servers.Await(t, "goroutines and files as before", func() error {
		if g, f := runtime.NumGoroutine(), openFiles(t); g > goroutines || f > files {
			return fmt.Errorf("%d goroutines and %d files, %d and %d before", g, f, goroutines, files)
		}
		return nil
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatalf("list the open files: %v", err)
	}
	return len(entries)
}

// crowd runs n calls by eight workers. Each call gets a number of its own.
func crowd(n int, call func(i int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				call(i)
			}
		})
	}
	all.Wait()
}

// wireTally counts what a crowd was told.
type wireTally struct{ answered, undecided, wrong atomic.Int64 }

// TestLostRepliesRunAtMostOnce holds the server's own count against the answers: what ran without an answer in time is at most
// what was called unknown or was answered late, and nothing was answered that did not run.
func TestLostRepliesRunAtMostOnce(t *testing.T) {
	for name, fault := range map[string]servers.Fault{
		"dropped":       {Mode: servers.DropReplies, Share: 0.2},
		"reset":         {Mode: servers.ResetReplies, Share: 0.3},
		"half closed":   {Mode: servers.HalfClose, Share: 0.3},
		"held or reset": {Mode: servers.HoldOrReset, Share: 0.2, Delay: 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			p, r := proxied(t, server, RedisConfig{Budget: 20 * time.Millisecond})
			c := charge(t, "k", bucket(1_000_000, year), 1)
			known := r.Stats().Unknown
			p.Set(fault)
			var n wireTally
			var asked int64
			servers.Await(t, "a lost reply", func() error {
				asked += 400
				crowd(400, func(int) {
					if spend(r, c)[0].Outcome == limit.Allowed {
						n.answered.Add(1)
					} else {
						n.undecided.Add(1)
					}
				})
				return notYet(r.Stats().Unknown > known)
			})
			aside := openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
			var unanswered, unknown, late int64
			servers.Await(t, "an end of every call", func() error {
				unknown, late = r.Stats().Unknown-known, r.Stats().Late // before what is left, so that no late call is missing there
				unanswered = 1_000_000 - usage(aside, c).Remaining - n.answered.Load()
				return notYet(unanswered <= unknown+late)
			})
			t.Logf("%d answered, %d undecided, %d of these unknown, %d late, %d of these ran", n.answered.Load(), n.undecided.Load(), unknown, late, unanswered)
			if unknown == 0 || p.Met() == 0 || unknown+late > n.undecided.Load() {
				t.Fatalf("%d of %d undecided calls are unknown, want some", unknown, n.undecided.Load())
			}
			if taken := n.answered.Load() + unanswered; taken > asked {
				t.Fatalf("%d tokens were taken for %d calls", taken, asked)
			}
			if unanswered < late {
				t.Fatalf("%d ran without an answer in time, want at least the %d whose answer was late", unanswered, late)
			}
		})
	}
}

// TestRepliesAreNotMixedUp sends tagged calls: each has a counter of its own with a limit that no other has, so that what is
// left tells whose reply it was. Replies in parts must all arrive; where the network also loses some, or brings them after
// their call has given up, those that arrive must be the right ones.
func TestRepliesAreNotMixedUp(t *testing.T) {
	server := servers.StartRedis(t)
	for _, step := range []struct {
		name   string
		fault  servers.Fault
		budget time.Duration
		calls  int
		loses  bool
	}{
		{"parts", servers.Fault{Mode: servers.Slices}, patient, wireCalls, false},
		{"parts with pauses", servers.Fault{Mode: servers.Slices, Delay: 50 * time.Microsecond, Share: 0.1}, patient, wireCalls / 4, false},
		{"byte by byte", servers.Fault{Mode: servers.OneByte}, patient, wireCalls / 4, false},
		{"reset", servers.Fault{Mode: servers.ResetReplies, Share: 0.05}, patient, wireCalls / 8, true},
		{"late", servers.Fault{Mode: servers.Latency, Share: 0.02, Delay: 12 * time.Millisecond, Jitter: 6 * time.Millisecond}, 10 * time.Millisecond, wireCalls / 4, true},
	} {
		t.Run(step.name, func(t *testing.T) {
			p, r := proxied(t, server, RedisConfig{Budget: step.budget})
			p.Set(step.fault)
			n := new(wireTally)
			// Calls that wait go together, so there may be few replies for the fault to meet.
			for round := 0; round == 0 || p.Met() == 0 && round < 50; round++ {
				tagged(t, r, fmt.Sprint("k", round, "-"), step.calls, n)
			}
			t.Logf("%d answered, %d undecided, %d replies met the fault", n.answered.Load(), n.undecided.Load(), p.Met())
			if wrong := n.wrong.Load(); wrong != 0 {
				t.Fatalf("%d of %d calls got another's reply", wrong, step.calls)
			}
			if lost := n.undecided.Load(); p.Met() == 0 || lost > 0 && !step.loses || n.answered.Load() == 0 {
				t.Fatalf("%d of %d calls were undecided, %d replies met the fault; calls may be lost: %v", lost, step.calls, p.Met(), step.loses)
			}
		})
	}
}

// tagged makes calls on counters whose names begin alike, and adds what came of them to n.
func tagged(t *testing.T, r *Redis, name string, calls int, n *wireTally) {
	t.Helper()
	crowd(calls, func(i int) {
		d := spend(r, charge(t, fmt.Sprint(name, i), bucket(int64(1000+i), year), 1))[0]
		switch {
		case d.Outcome == limit.Undecided:
			n.undecided.Add(1)
		case d.Outcome != limit.Allowed || d.Charged != 1 || d.Remaining != int64(1000+i-1):
			n.wrong.Add(1)
		default:
			n.answered.Add(1)
		}
	})
}

// TestConnectionsInABlackHoleAreCulled lets connections die without a word. Calls are undecided while nothing is answered, no more
// connections hang than the pool holds, and when the network is back so is the store: each dead connection costs one call
// at most, and then it is gone.
func TestConnectionsInABlackHoleAreCulled(t *testing.T) {
	const pool = 8
	leavesNothing(t, func(t *testing.T) {
		server := servers.StartRedis(t)
		p, r := proxied(t, server, RedisConfig{Servers: fleet.Servers{DialTimeout: 200 * time.Millisecond, Streams: pool}, Budget: 50 * time.Millisecond})
		c := charge(t, "k", bucket(1_000_000, year), 1)
		p.Set(servers.Fault{Mode: servers.BlackHole})
		crowd(80, func(int) {
			if d := spend(r, c)[0]; d.Outcome != limit.Undecided {
				t.Errorf("decision %+v in a black hole, want undecided", d)
			}
		})
		awaitAtMost(t, "dead connections", p.Dead, pool)
		wantRecovery(t, p, r, c, pool)
	})
}

// awaitAtMost waits until a count of the proxy, which learns of an end a moment later, is within its bound.
func awaitAtMost(t *testing.T, what string, count func() int64, most int64) {
	t.Helper()
	servers.Await(t, what, func() error {
		if n := count(); n > most {
			return fmt.Errorf("%d, want at most %d", n, most)
		}
		return nil
	})
}

// wantRecovery ends a black hole and uses all connections of the pool at once, until none is dead. The network is slow, so
// that calls do wait beside each other.
func wantRecovery(t *testing.T, p *servers.Proxy, r *Redis, c limit.Charge, pool int64) {
	t.Helper()
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 5 * time.Millisecond})
	back := time.Now()
	var lost atomic.Int64
	servers.Await(t, "an end of dead connections", func() error {
		crowd(int(2*pool), func(int) {
			if spend(r, c)[0].Outcome == limit.Undecided {
				lost.Add(1)
			}
		})
		if n := p.Dead(); n > 0 {
			return fmt.Errorf("%d of %d connections are dead", n, p.Open())
		}
		return nil
	})
	t.Logf("recovered after %v, %d calls undecided meanwhile, %d connections in all", time.Since(back), lost.Load(), p.Accepted())
	awaitAtMost(t, "open connections", p.Open, pool)
	servers.Await(t, "100 decisions in a row", func() error {
		lost.Store(0)
		crowd(100, func(int) {
			if spend(r, c)[0].Outcome != limit.Allowed {
				lost.Add(1)
			}
		})
		if n := lost.Load(); n > 0 {
			return fmt.Errorf("%d of 100 undecided", n)
		}
		return nil
	})
}

// TestSlowNetworkBelowTheBudgetDecides is a network that is slow and steady. A machine that stands still for a moment makes
// calls late, too, so one good round out of some is enough: a store that cannot do it has none.
func TestSlowNetworkBelowTheBudgetDecides(t *testing.T) {
	const rounds, calls, most = 60, 1000, 5
	leavesNothing(t, func(t *testing.T) {
		server := servers.StartRedis(t)
		p, r := proxied(t, server, RedisConfig{Budget: slowBudget})
		p.Set(servers.Fault{Mode: servers.Latency, Delay: 4 * time.Millisecond, Jitter: 2 * time.Millisecond})
		for round := range rounds {
			awaitAllowed(t, r, charge(t, "first", bucket(1_000_000, year), 1))
			n := new(wireTally)
			tagged(t, r, fmt.Sprint("round ", round), calls, n)
			t.Logf("%d of %d undecided", n.undecided.Load(), calls)
			if n.wrong.Load() > 0 {
				t.Fatalf("%d of %d calls got another's reply", n.wrong.Load(), calls)
			}
			if n.undecided.Load() <= most {
				return
			}
		}
		t.Fatalf("in each of %d rounds of %d calls more than %d were undecided", rounds, calls, most)
	})
}
