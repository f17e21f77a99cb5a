package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// daily earns 12 tokens in a second, which is enough for it to lend.
var daily = limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000, Window: 24 * time.Hour, Burst: 1_000_000}

// TestEachWindowIsLeasedAgain, though requests were refused at the end of the one before, and others are decided by the server all the time.
func TestEachWindowIsLeasedAgain(t *testing.T) {
	r := leasing(t, servers.StartRedis(t).Addr)
	c := leased("k", limit.Limit{Algorithm: limit.FixedWindow, Count: 5_000, Window: time.Second})
	var refused atomic.Int64 // the second on the server in which a request was last refused
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if d := spend(r, c)[0]; d.Outcome == limit.Refused && d.At > 0 {
					refused.Store(d.At / 1_000_000)
				}
			}
		})
	}
	defer func() { close(done); all.Wait() }()
	for range 3 {
		before := refused.Load()
		servers.Await(t, "a window that is spent", func() error {
			if refused.Load() == before {
				return errors.New("it is not")
			}
			return nil
		})
		held := r.Stats().LeaseDecisions
		servers.Await(t, "decisions by what is held of the next one", func() error {
			if r.Stats().LeaseDecisions < held+1000 {
				return errors.New("there are none")
			}
			return nil
		})
	}
}

// TestChargesOnOneCounterShowWhatIsLeftAfterAll, as those that the server decides.
func TestChargesOnOneCounterShowWhatIsLeftAfterAll(t *testing.T) {
	r := leasing(t, servers.StartRedis(t).Addr)
	c, none := leased("k", yearly), leased("none", limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: year})
	spend(r, none)
	servers.Await(t, "three charges that are decided by what is held", func() error {
		heat(t, r, c)
		d := spend(r, c, c, c)
		if !d[0].Held || !d[1].Held || !d[2].Held {
			return errors.New("one of them is not")
		}
		if d[0].Remaining != d[2].Remaining || d[1].Remaining != d[2].Remaining {
			t.Fatalf("three charges on one counter show %d, %d and %d", d[0].Remaining, d[1].Remaining, d[2].Remaining)
		}
		left := d[2].Remaining
		d = spend(r, c, c, none)
		if !d[0].Held || !d[1].Held {
			return errors.New("one of them is not")
		}
		if d[0].Charged != 0 || d[0].Remaining != left || d[1].Remaining != left {
			t.Fatalf("two charges of a refused request show %d and %d, want %d", d[0].Remaining, d[1].Remaining, left)
		}
		return nil
	})
}

// lend makes a call that lends tokens of a counter, and returns it with its reply.
func lend(t testing.TB, h *holdings, c *limit.Charge) (*limit.Ask, *fleet.Call) {
	t.Helper()
	a := &limit.Ask{Key: c.Key, Limit: c.Limit, Want: 10, Least: 1, Parts: 1}
	n, _ := h.redis.place(c)
	call := &fleet.Call{Key: c.Key}
	err := h.redis.runOnce(n, call, patient, limit.LeaseSHA, limit.LeaseScript, a.Key, string(a.Append(nil, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return a, call
}
