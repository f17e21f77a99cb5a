package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// leasing is a store that holds tokens of hot counters.
func leasing(t *testing.T, address string) *Redis {
	t.Helper()
	r := NewRedis(RedisConfig{Servers: fleet.Servers{Addresses: []string{address}}, Budget: patient, Patience: patient, Leases: true})
	t.Cleanup(func() { r.Close() })
	r.Ready(t.Context())
	return r
}

// leased is a charge that may be made from what is held.
func leased(key string, l limit.Limit) limit.Charge {
	return limit.Charge{Key: key, Limit: l, Cost: 1, Lease: limit.MaxLease}
}

// heat spends until tokens of the counter are held, and returns how many were admitted.
func heat(t *testing.T, r *Redis, c limit.Charge) (admitted int64) {
	t.Helper()
	servers.Await(t, "tokens that are held", func() error {
		for range 4 * hotHits {
			switch spend(r, c)[0].Outcome {
			case limit.Allowed:
				admitted++
			case limit.Refused:
				return errors.New("refused already")
			}
		}
		if s := r.Stats(); s.LeaseDecisions == 0 || s.LeaseTokens == 0 {
			return fmt.Errorf("%d decisions were made by what is held, and %d tokens are", s.LeaseDecisions, s.LeaseTokens)
		}
		return nil
	})
	return admitted
}

// TestAHotCounterIsDecidedHere: most calls cost no trip, and two stores together admit exactly the limit.
func TestAHotCounterIsDecidedHere(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			server := servers.StartRedis(t)
			stores := []*Redis{leasing(t, server.Addr), leasing(t, server.Addr)}
			l := limit.Limit{Algorithm: a, Count: 20_000, Window: 24 * time.Hour, Burst: 20_000}
			if a == limit.TokenBucket {
				// It earns a token in 100 ms, the least that is lent, so what it earns in the test is bounded below.
				l.Count = 10 * 24 * 3600
			}
			began := time.Now()
			var admitted, undecided atomic.Int64
			var all sync.WaitGroup
			for i := range 32 {
				all.Go(func() {
					for refused := 0; refused < 100; {
						switch spend(stores[i%2], leased("k", l))[0].Outcome {
						case limit.Allowed:
							admitted.Add(1)
						case limit.Refused:
							refused++
						default:
							undecided.Add(1)
						}
					}
				})
			}
			all.Wait()
			if n := undecided.Load(); n > 0 {
				t.Errorf("%d calls were not decided", n)
			}
			most := int64(20_000)
			if a == limit.TokenBucket {
				most += int64(time.Since(began)/(100*time.Millisecond)) + 1
			}
			got := admitted.Load()
			if got > most {
				t.Errorf("%d admitted, at most %d", got, most)
			}
			var s RedisStats
			for _, r := range stores {
				one := r.Stats()
				s.LeaseDecisions += one.LeaseDecisions
				s.Trips += one.Trips
				s.LeaseAsks += one.LeaseAsks
			}
			t.Logf("%d admitted of %d, %d by what was held, %d trips and %d leases", got, most, s.LeaseDecisions, s.Trips, s.LeaseAsks)
			if s.LeaseDecisions < got/2 {
				t.Errorf("%d of %d admitted calls were decided by what is held, want at least half", s.LeaseDecisions, got)
			}
		})
	}
}

// TestWhatIsHeldComesBack when it is idle, when the rules change, and when the store ends: then another store finds all of it.
func TestWhatIsHeldComesBack(t *testing.T) {
	for name, let := range map[string]func(r *Redis){
		"idle":    func(*Redis) {},
		"rules":   (*Redis).Forget,
		"closing": func(r *Redis) { r.Close() },
	} {
		for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
			t.Run(fmt.Sprint(name, " ", a), func(t *testing.T) {
				server := servers.StartRedis(t)
				l := limit.Limit{Algorithm: a, Count: 1_000_000, Window: 24 * time.Hour, Burst: 1_000_000}
				holder, other := leasing(t, server.Addr), leasing(t, server.Addr)
				admitted := heat(t, holder, leased("k", l))
				let(holder)
				servers.Await(t, "a counter with all but what was spent", func() error {
					var d [1]limit.Decision
					other.Usage(context.Background(), []limit.Charge{leased("k", l)}, d[:])
					// A bucket earns 12 tokens in a second.
					if left := l.Capacity() - d[0].Remaining; left > admitted {
						return fmt.Errorf("%d tokens are missing, %d were spent", left, admitted)
					}
					return nil
				})
			})
		}
	}
}

// TestAResetEndsWhatIsHeld: the counter is full and nothing of it is lent.
func TestAResetEndsWhatIsHeld(t *testing.T) {
	server := servers.StartRedis(t)
	r := leasing(t, server.Addr)
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000, Window: 24 * time.Hour, Burst: 1_000_000}
	heat(t, r, leased("k", l))
	if err := r.Reset(t.Context(), []string{"k"}); err != nil {
		t.Fatal(err)
	}
	if s := r.Stats(); s.LeaseTokens != 0 {
		t.Errorf("%d tokens are held after a reset", s.LeaseTokens)
	}
}

// TestARefusedRequestTakesNothingOfWhatIsHeld: one charge is decided here, the other by the server, which refuses.
func TestARefusedRequestTakesNothingOfWhatIsHeld(t *testing.T) {
	server := servers.StartRedis(t)
	r := leasing(t, server.Addr)
	hot := limit.Limit{Algorithm: limit.FixedWindow, Count: 1_000_000, Window: 24 * time.Hour}
	never := limit.Limit{Algorithm: limit.SlidingLog, Count: 1, Window: 24 * time.Hour}
	charges := []limit.Charge{leased("hot", hot), {Key: "never", Limit: never, Cost: 1}}
	if d := spend(r, charges[1]); d[0].Outcome != limit.Allowed {
		t.Fatalf("the first charge of the log: %+v", d)
	}
	admitted := heat(t, r, charges[0])
	for range 50 {
		d := make([]limit.Decision, 2)
		r.Spend(context.Background(), charges, d)
		if d[0].Outcome != limit.Allowed || d[0].Charged != 0 || d[1].Outcome != limit.Refused {
			t.Fatalf("a request that a log refuses: %+v", d)
		}
	}
	r.Forget()
	servers.Await(t, "a counter that lacks what was admitted", func() error {
		var d [1]limit.Decision
		r.Usage(context.Background(), charges[:1], d[:])
		if spent := hot.Count - d[0].Remaining; spent != admitted {
			return fmt.Errorf("%d tokens are spent, want %d", spent, admitted)
		}
		return nil
	})
}

// TestALateProcessSpendsNothing: a lease is over also while this process does not run, and when the machine was suspended.
func TestALateProcessSpendsNothing(t *testing.T) {
	began := time.Now()
	l := lot{held: 1, until: began.Add(200 * time.Millisecond)}
	suspended := began.Add(time.Millisecond) // on the monotonic clock
	for name, step := range map[string]struct {
		now  time.Time
		live bool
	}{
		"at once":        {began, true},
		"before the end": {began.Add(199 * time.Millisecond), true},
		"at the end":     {began.Add(200 * time.Millisecond), false},
		"suspended":      {suspended.Round(0).Add(time.Second), false},
	} {
		if got := l.live(step.now); got != step.live {
			t.Errorf("%s: live %v, want %v", name, got, step.live)
		}
	}
}

// TestNothingIsLeasedFromASuccessor for as long as leases of its predecessor may live: it may not know of them.
func TestNothingIsLeasedFromASuccessor(t *testing.T) {
	server := servers.StartRedis(t)
	r := leasing(t, server.Addr)
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000, Window: time.Second, Burst: 1_000_000}
	heat(t, r, leased("k", l))
	h := r.holdings
	h.mu.Lock()
	h.young = func(string, *limit.Limit) bool { return true }
	h.mu.Unlock()
	servers.Await(t, "the end of the call that is under way, and of all that is held", func() error {
		if n := r.Stats().LeaseTokens; n > 0 {
			return fmt.Errorf("%d tokens are held", n)
		}
		return nil
	})
	before := r.Stats().LeaseGranted
	for range 1000 {
		if d := spend(r, leased("k", l)); d[0].Outcome != limit.Allowed || d[0].Held {
			t.Fatalf("a charge: %+v", d)
		}
	}
	if after := r.Stats().LeaseGranted; after > before {
		t.Errorf("%d tokens were leased from a server that has just succeeded another one", after-before)
	}
}
