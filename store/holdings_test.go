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
func leasing(t testing.TB, address string) *Redis {
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
func heat(t testing.TB, r *Redis, c limit.Charge) (admitted int64) {
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

// TestALateProcessSpendsNothing: a lease is over also while this process does not run, and when the machine was suspended.
func TestALateProcessSpendsNothing(t *testing.T) {
	began := instant{mono: int64(time.Hour), wall: time.Now().UnixNano()}
	l := lot{held: 1, until: began.plus(200 * time.Millisecond)}
	later := func(mono, wall time.Duration) instant {
		return instant{began.mono + int64(mono), began.wall + int64(wall)}
	}
	for name, step := range map[string]struct {
		now  instant
		live bool
	}{
		"at once":         {began, true},
		"before the end":  {later(199*time.Millisecond, 199*time.Millisecond), true},
		"at the end":      {later(200*time.Millisecond, 200*time.Millisecond), false},
		"suspended":       {later(time.Millisecond, time.Second), false},
		"clock set back":  {later(200*time.Millisecond, -time.Hour), false},
		"clock set ahead": {later(time.Millisecond, time.Hour), false},
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
	h.calls.wait()
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

// spentOn is how many tokens of a counter are gone, once all that was held is returned.
func spentOn(t testing.TB, r *Redis, c limit.Charge, want int64) {
	t.Helper()
	r.Forget()
	servers.Await(t, fmt.Sprintf("a counter of which %d tokens are spent", want), func() error {
		var d [1]limit.Decision
		r.Usage(context.Background(), []limit.Charge{c}, d[:])
		if spent := c.Limit.Capacity() - d[0].Remaining; spent != want {
			return fmt.Errorf("%d are spent", spent)
		}
		return nil
	})
}

// yearly is a limit of which nothing comes back during a test.
var yearly = limit.Limit{Algorithm: limit.FixedWindow, Count: 1_000_000, Window: year}

// TestChargesOnSeveralServersThatAreHeldCostNoTrip: all are taken under one lock.
func TestChargesOnSeveralServersThatAreHeldCostNoTrip(t *testing.T) {
	shards := []string{servers.StartRedis(t).Addr, servers.StartRedis(t).Addr}
	r := NewRedis(RedisConfig{Servers: fleet.Servers{Kind: fleet.Ring, Addresses: shards}, Budget: patient, Patience: patient, Leases: true})
	t.Cleanup(func() { r.Close() })
	r.Ready(t.Context())
	charges := []limit.Charge{leased("0", yearly)}
	for i := 1; len(charges) < 2; i++ {
		c := leased(fmt.Sprint(i), yearly)
		if _, together := r.together([]limit.Charge{charges[0], c}); !together {
			charges = append(charges, c)
		}
	}
	servers.Await(t, "a request that is decided by what is held of both", func() error {
		d := make([]limit.Decision, 2)
		for range 4 * hotHits {
			r.Spend(context.Background(), charges, d)
		}
		trips := r.Stats().Trips
		r.Spend(context.Background(), charges, d)
		if !d[0].Held || !d[1].Held || r.Stats().Trips != trips {
			return fmt.Errorf("%+v with %d trips", d, r.Stats().Trips-trips)
		}
		return nil
	})
}

// TestALeaseIsNoLargerThanItsRuleAllows: lease: { max: N }.
func TestALeaseIsNoLargerThanItsRuleAllows(t *testing.T) {
	r := leasing(t, servers.StartRedis(t).Addr)
	c := leased("k", yearly)
	c.Lease = 5
	heat(t, r, c)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				spend(r, c)
				if n := r.Stats().LeaseTokens; n > c.Lease {
					t.Errorf("%d tokens are held, at most %d", n, c.Lease)
				}
			}
		})
	}
	all.Wait()
}

// TestNoReportIsSentTwice: a token that is reported twice is one of another sidecar.
func TestNoReportIsSentTwice(t *testing.T) {
	h := new(holdings)
	now := instant{mono: int64(time.Hour), wall: int64(time.Hour)}
	l := &lot{epoch: 7, held: 5, taken: 2, spent: 3, until: now.plus(limit.LeaseLife)}
	for i, want := range []limit.Report{{Epoch: 7, Spent: 3}, {Epoch: 7}} {
		if got := h.emptyLocked(l, now, false); got != want {
			t.Errorf("report %d while the lot lives: %+v, want %+v", i+1, got, want)
		}
	}
	for i, want := range []limit.Report{{Epoch: 7, Returned: 5}, {Epoch: 7}} {
		if got := h.emptyLocked(l, now, true); got != want {
			t.Errorf("report %d of the last ones: %+v, want %+v", i+1, got, want)
		}
	}
	if l.held != 0 || l.taken != 2 {
		t.Errorf("%d are held and %d taken after all was returned, want 0 and 2", l.held, l.taken)
	}
}

// TestLeasesAdmitNoMoreThanTheLimit: two stores that lease the same counter admit at most its limit together. How many calls
// their leases decide is a matter of time: TestAHotCounterIsDecidedHere.
func TestLeasesAdmitNoMoreThanTheLimit(t *testing.T) {
	const count = 20_000
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			server := servers.StartRedis(t)
			stores := []*Redis{leasing(t, server.Addr), leasing(t, server.Addr)}
			l := limit.Limit{Algorithm: a, Count: count, Window: year, Burst: count}
			if a == limit.TokenBucket {
				l.Count, l.Window = 10*24*3600, 24*time.Hour // a token in 100 ms: slower ones are not leased
			}
			began := time.Now()
			var admitted atomic.Int64
			var all sync.WaitGroup
			for i := range 32 {
				all.Go(func() {
					for refused := 0; refused < 100; {
						switch spend(stores[i%2], leased("k", l))[0].Outcome {
						case limit.Allowed:
							admitted.Add(1)
						default:
							refused++
						}
					}
				})
			}
			all.Wait()
			most := int64(count)
			if a == limit.TokenBucket {
				most += int64(time.Since(began)/(100*time.Millisecond)) + 1
			}
			if got := admitted.Load(); got > most || got < count/2 {
				t.Errorf("%d admitted, want at most %d, and at least %d", got, most, count/2)
			}
			if leases := stores[0].Stats().LeaseAsks + stores[1].Stats().LeaseAsks; leases == 0 {
				t.Error("no lease was asked for")
			}
		})
	}
}
