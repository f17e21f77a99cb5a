//go:build full

package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// whileHeld runs a test of leased tokens. They are returned after 50 ms without a call, which a busy machine may take away.
func whileHeld(t *testing.T, run func(t testing.TB)) {
	t.Helper()
	servers.Tries(t, run)
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
