//go:build full

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestOneStoreAdmitsAllThatFits: what it holds itself does not make the server refuse, nor take what is left, as long as there is enough in both.
func TestOneStoreAdmitsAllThatFits(t *testing.T) {
	for _, cost := range []int64{7, 10, 25} {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprintf("cost %d, each %v", cost, each), func(t *testing.T) {
				whileHeld(t, func(t testing.TB) {
					r := leasing(t, servers.StartRedis(t).Addr)
					const count = 100_000
					c := leased("k", limit.Limit{Algorithm: limit.FixedWindow, Count: count, Window: year})
					c.Cost, c.Each = cost, each
					var admitted atomic.Int64
					admitted.Add(heat(t, r, c))
					var all sync.WaitGroup
					for range 16 {
						all.Go(func() {
							for spend(r, c)[0].Outcome == limit.Allowed {
								admitted.Add(1)
							}
						})
					}
					all.Wait()
					if got, want := admitted.Load(), count/cost; got != want {
						t.Errorf("%d requests of %d admitted on a limit of %d, want %d", got, cost, count, want)
					}
				})
			})
		}
	}
}

// TestARequestForAllThatIsLeft passes though a part of it is held here.
func TestARequestForAllThatIsLeft(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		for _, l := range []limit.Limit{yearly, {Algorithm: limit.SlidingWindow, Count: 1_000_000, Window: year}} {
			r := leasing(t, servers.StartRedis(t).Addr)
			c := leased("k", l)
			c.Each = true
			c.Cost = l.Count - heat(t, r, c)
			if d := spend(r, c)[0]; d.Outcome != limit.Allowed || d.Charged != c.Cost || d.Remaining != 0 {
				t.Errorf("%v: a request for the %d that are left: %+v", l.Algorithm, c.Cost, d)
			}
		}
	})
}

// TestARefundGivesBackOnlyWhatWasSpent: of a window not what is held, and of a bucket also what was spent of that.
func TestARefundGivesBackOnlyWhatWasSpent(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
			r := leasing(t, servers.StartRedis(t).Addr)
			c := leased("k", limit.Limit{Algorithm: a, Count: 1_000_000, Window: year})
			spent := heat(t, r, c)
			c.Op, c.Cost = limit.Refund, c.Limit.Count
			if d := spend(r, c)[0]; d.Charged != -spent || d.Remaining != c.Limit.Count {
				t.Errorf("%v: a refund of all after %d were spent: %+v", a, spent, d)
			}
		}
		r := leasing(t, servers.StartRedis(t).Addr)
		c := leased("k", daily)
		c.Cost = 1000
		spent := c.Cost * heat(t, r, c)
		c.Op, c.Cost = limit.Refund, spent
		if d := spend(r, c)[0]; d.Charged > 1000-spent { // it may have earned some
			t.Errorf("a refund of %d on a bucket: %+v", spent, d)
		}
	})
}

// TestWhatIsPutBackAfterTheEndIsReturned: a request takes of a holding that ends before the request is refused.
func TestWhatIsPutBackAfterTheEndIsReturned(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		h, c := r.holdings, leased("k", yearly)
		spent := heat(t, r, c)
		request := &trip{charges: []limit.Charge{c, leased("other", yearly)}, decisions: make([]limit.Decision, 2)}
		request.charges[0].Cost = 3
		if !h.holds(request) {
			t.Fatal("nothing is held")
		}
		if taken, _ := h.takeAll(request); taken != 1 {
			t.Fatalf("%d charges have what they need, want one", taken)
		}
		h.returnAll()
		h.calls.wait()
		h.settle(request, none)
		spentOn(t, r, c, spent)
	})
}

// TestALeaseThatComesTooLateIsReturned, but not where the counter may have been reset since: then it has lent nothing.
func TestALeaseThatComesTooLateIsReturned(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		h, c := r.holdings, leased("k", yearly)
		a, call := lend(t, h, &c)
		h.cameLate(a, h.resets.Load(), call, nil)
		h.calls.wait()
		spentOn(t, r, c, 0)

		a, call = lend(t, h, &c)
		before := h.resets.Load()
		err := r.Reset(context.Background(), []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		spend(r, c)
		h.cameLate(a, before, call, nil)
		h.calls.wait()
		spentOn(t, r, c, 1)
	})
}

// TestALeaseFromBeforeAResetIsWorthNothing: it comes when the counter has been reset.
func TestALeaseFromBeforeAResetIsWorthNothing(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		h, c := r.holdings, leased("k", yearly)
		heat(t, r, c)
		l := h.find(&c)
		servers.Await(t, "a holding without a call under way", func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if l.asking {
				return errors.New("there is one")
			}
			l.asking = true // from here on, this is one
			return nil
		})
		_, call := lend(t, h, &c)
		g, err := limit.ReadGrant(call.Reply.Data)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Reset(context.Background(), []string{"k"})
		if err != nil {
			t.Fatal(err)
		}
		spend(r, c)
		h.deposit(l, g, h.instant())
		h.calls.wait()
		spentOn(t, r, c, 1)
	})
}

// Of one sidecar all are exact: answers by Redis while tokens are held, and those by what is held after Redis has decided.
func TestWhatIsLeftIsExactBesideALease(t *testing.T) {
	whileHeld(t, func(t testing.TB) {
		r := leasing(t, servers.StartRedis(t).Addr)
		c := leased("k", yearly)
		spent := heat(t, r, c)
		large := c
		large.Cost = 5000 // more than is held, less than Redis has
		for _, step := range []struct {
			charge limit.Charge
			held   bool
		}{{large, false}, {c, true}, {large, false}, {c, true}} {
			d := spend(r, step.charge)[0]
			spent += step.charge.Cost
			if want := yearly.Count - spent; d.Outcome != limit.Allowed || d.Held != step.held || d.Remaining != want {
				t.Errorf("a cost of %d: %+v, want one that is held: %v, with %d left", step.charge.Cost, d, step.held, want)
			}
		}
	})
}
