package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// yearly is a limit of which nothing comes back during a test.
func yearly(count int64) limit.Limit {
	return limit.Limit{Algorithm: limit.FixedWindow, Count: count, Window: year}
}

// leasing is a store that takes tokens of hot counters ahead.
func leasing(t testing.TB, server *servers.Redis) *Redis {
	t.Helper()
	return open(t, RedisConfig{Main: at(server.Addr), Leases: true})
}

// leased is a charge that may be made by what is on lease.
func leased(t testing.TB, name string, l limit.Limit) limit.Charge {
	c := charge(t, name, l, 1)
	c.Lease = limit.MaxLease
	return c
}

// heat spends until tokens are on lease, and returns how many were admitted.
func heat(t testing.TB, r *Redis, c limit.Charge) (admitted int64) {
	t.Helper()
	servers.Await(t, "tokens on lease", func() error {
		for range 20 {
			if spend(r, c)[0].Outcome != limit.Allowed {
				return errors.New("refused already")
			}
			admitted++
		}
		if s := r.Stats().Leases; s.Decisions == 0 || s.Tokens == 0 {
			return fmt.Errorf("leases %+v", s)
		}
		return nil
	})
	return admitted
}

// wantSpent waits until so many tokens of a counter are gone, once all that was on lease is back.
func wantSpent(t testing.TB, r *Redis, c limit.Charge, spent int64) {
	t.Helper()
	servers.Await(t, fmt.Sprintf("a counter of which %d tokens are spent", spent), func() error {
		d := peek(r, c)
		if got := c.Limit.Capacity() - d.Remaining; got != spent || d.Outcome == limit.Undecided {
			return fmt.Errorf("%d are spent (%s)", got, d.Reason)
		}
		return nil
	})
}

// TestAHotCounterIsDecidedHere, by few runs, and what is not spent comes back.
func TestAHotCounterIsDecidedHere(t *testing.T) {
	server := servers.StartRedis(t)
	for name, l := range map[string]limit.Limit{"window": yearly(1_000_000), "bucket": bucket(1<<40, year)} {
		t.Run(name, func(t *testing.T) {
			r := leasing(t, server)
			c := leased(t, "k", l)
			admitted := heat(t, r, c)
			before := runs(t, server)
			for range 1000 {
				want := spend(r, c)[0]
				if want.Outcome != limit.Allowed {
					t.Fatalf("decided %+v, want allowed", want)
				}
				admitted++
			}
			if n := runs(t, server) - before; n > 500 {
				t.Errorf("1000 decisions cost %d runs", n)
			}
			if name == "window" {
				r.Forget()
				wantSpent(t, leasing(t, server), c, admitted)
			}
		})
	}
}

// TestWhatIsOnLeaseComesBack when it is not used, when the store closes, and in front of what has to ask the server.
func TestWhatIsOnLeaseComesBack(t *testing.T) {
	server := servers.StartRedis(t)
	aside := open(t, RedisConfig{Main: at(server.Addr)})
	for name, end := range map[string]func(r *Redis, c limit.Charge) (more int64){
		"not used": func(*Redis, limit.Charge) int64 { return 0 },
		"closed":   func(r *Redis, _ limit.Charge) int64 { _ = r.Close(); return 0 },
		"peeked at": func(r *Redis, c limit.Charge) int64 {
			peek(r, c)
			return 0
		},
		"beside another charge": func(r *Redis, c limit.Charge) int64 {
			c.Lease = 0
			return spend(r, c, charge(t, "cold", yearly(10), 1))[0].Charged
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := leasing(t, server)
			c := leased(t, "k", yearly(1_000_000))
			admitted := heat(t, r, c)
			admitted += end(r, c)
			wantSpent(t, aside, c, admitted)
		})
	}
}

// TestOneStoreAdmitsAllThatFits: what is on lease here refuses no request here.
func TestOneStoreAdmitsAllThatFits(t *testing.T) {
	r := leasing(t, servers.StartRedis(t))
	c, cold := leased(t, "k", yearly(3000)), charge(t, "cold", yearly(1_000_000), 1)
	admitted := int64(0)
	for i := range 4000 {
		charges := []limit.Charge{c}
		if i%50 == 49 {
			charges = append(charges, cold)
		}
		if d := spend(r, charges...); !limit.Refuses(charges, d) {
			admitted++
		}
	}
	if admitted != 3000 {
		t.Errorf("%d admitted, want 3000", admitted)
	}
}

// TestLeasesAdmitNoMoreThanTheLimit: four sidecars and their callers share counters, split over servers.
func TestLeasesAdmitNoMoreThanTheLimit(t *testing.T) {
	servers := startRing(t, 2)
	var all []*Redis
	for range 4 {
		all = append(all, open(t, RedisConfig{Main: ring(servers...), Leases: true}))
	}
	one, two := leased(t, "one", yearly(5000)), leased(t, "two", yearly(8000))
	two.Limit.Algorithm = limit.SlidingWindow
	var admitted [2]atomic.Int64
	crowd(16_000, func(i int) {
		charges := []limit.Charge{one, two}
		if i%3 > 0 {
			charges = charges[i%2 : i%2+1]
		}
		if d := spend(all[i%4], charges...); limit.Refuses(charges, d) {
			return
		}
		for _, c := range charges {
			if c.Key == one.Key {
				admitted[0].Add(1)
			} else {
				admitted[1].Add(1)
			}
		}
	})
	for _, r := range all {
		r.Forget()
	}
	for i, c := range []limit.Charge{one, two} {
		if n := admitted[i].Load(); n > c.Limit.Count {
			t.Errorf("%d admitted of %d", n, c.Limit.Count)
		}
		wantSpent(t, all[0], c, admitted[i].Load())
	}
}

// TestAResetEndsWhatIsOnLease: the counter is full and nothing of it is lent.
func TestAResetEndsWhatIsOnLease(t *testing.T) {
	r := leasing(t, servers.StartRedis(t))
	c := leased(t, "k", yearly(1_000_000))
	heat(t, r, c)
	err := r.Reset(t.Context(), []string{c.Key})
	if s := r.Stats().Leases; err != nil || s.Tokens != 0 {
		t.Errorf("%d tokens are on lease after a reset, with error %v", s.Tokens, err)
	}
	wantLeft(t, r, c, 1_000_000)
}

// TestWhatCannotBeReturnedCountsAsSpent: the server is gone.
func TestWhatCannotBeReturnedCountsAsSpent(t *testing.T) {
	server := servers.StartRedis(t)
	r := leasing(t, server)
	heat(t, r, leased(t, "k", yearly(1_000_000)))
	server.Kill(t)
	r.Forget()
	servers.Await(t, "the loss of tokens", func() error {
		s := r.Stats().Leases
		return notYet(s.Expired > 0 && s.Tokens == 0)
	})
}
