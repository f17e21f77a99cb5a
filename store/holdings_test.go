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

// whileHeld judges a test of what is held. Without a call that is returned after idleAfter, and what is not returned dies soon, so shorter waits for a
// processor matter.
func whileHeld(t *testing.T, run func(t testing.TB)) {
	t.Helper()
	servers.Judge(t, idleAfter/2, func(t testing.TB, _ *servers.Machine) { run(t) })
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

// TestAHotCounterIsDecidedHere: most calls cost no trip, and two stores together admit exactly the limit. The first 20 ms, in which a counter becomes
// hot, are few of the calls.
func TestAHotCounterIsDecidedHere(t *testing.T) {
	const count = 100_000
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			whileHeld(t, func(t testing.TB) {
				server := servers.StartRedis(t)
				stores := []*Redis{leasing(t, server.Addr), leasing(t, server.Addr)}
				l := limit.Limit{Algorithm: a, Count: count, Window: year, Burst: count}
				if a == limit.TokenBucket {
					// It earns a token in 100 ms, the least that is lent, so what it earns in the test is bounded below.
					l.Count, l.Window = 10*24*3600, 24*time.Hour
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
				most := int64(count)
				if a == limit.TokenBucket {
					most += int64(time.Since(began)/(100*time.Millisecond)) + 1
				}
				got := admitted.Load()
				if got > most {
					servers.Wrong(t, "%d admitted, at most %d", got, most)
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
				whileHeld(t, func(t testing.TB) {
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
	whileHeld(t, func(t testing.TB) {
		server := servers.StartRedis(t)
		r := leasing(t, server.Addr)
		hot := limit.Limit{Algorithm: limit.FixedWindow, Count: 1_000_000, Window: year}
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
	})
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

// TestOtherChargesBesideALease: questions are answered by what is held, costs are taken from it, and what is given back or charged
// afterwards goes to the server.
func TestOtherChargesBesideALease(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		c := leased("k", yearly)
		spent := heat(t, r, c)
		of := func(op limit.Op, cost int64) limit.Charge { c := c; c.Op, c.Cost = op, cost; return c }
		if d := spend(r, of(limit.Peek, 1))[0]; d.Outcome != limit.Allowed || d.Charged != 0 || d.Remaining > yearly.Count-spent {
			t.Errorf("a question: %+v, want it allowed, with at most %d left", d, yearly.Count-spent)
		}
		for _, cost := range []int64{1, 3, 100_000} {
			if d := spend(r, of(limit.Spend, cost))[0]; d.Outcome != limit.Allowed || d.Charged != cost {
				t.Errorf("a cost of %d: %+v", cost, d)
			}
			spent += cost
		}
		if d := spend(r, of(limit.Debit, 7))[0]; d.Charged != 7 || d.Held {
			t.Errorf("a debit: %+v", d)
		}
		if d := spend(r, of(limit.Refund, 5))[0]; d.Charged != -5 || d.Held {
			t.Errorf("a refund: %+v", d)
		}
		spentOn(t, r, c, spent+7-5)
	})
}

// TestQuotasAreDecidedTogether: one of them has room here, the other one is spent on the server, so the request passes and charges the one.
func TestQuotasAreDecidedTogether(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		open, full := leased("open", yearly), leased("full", limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: year})
		spend(r, full)
		spent := heat(t, r, open)
		open.Mode, full.Mode = limit.Quota, limit.Quota
		for range 20 {
			d := make([]limit.Decision, 2)
			r.Spend(context.Background(), []limit.Charge{open, full}, d)
			if d[0].Outcome != limit.Allowed || d[0].Charged != 1 || d[1].Outcome != limit.Refused || d[1].Charged != 0 {
				t.Fatalf("two quotas of which one has room: %+v", d)
			}
			spent++
		}
		spentOn(t, r, open, spent)
	})
}

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
