package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// year is a window that no test sees the end of. Nothing comes back during a test, so counts are exact.
const year = 365 * 24 * time.Hour

// patient is a time for tests that are not about time, on a machine that is busy with others.
const patient = 20 * time.Second

// client reaches servers, and waits long for them unless the test sets how long.
func client(c redis.Config) *redis.Client {
	if c.Silence == 0 {
		c.Silence, c.DialTimeout = patient, patient
	}
	return redis.New(c)
}

// at is a client of one server.
func at(address string) *redis.Client {
	return client(redis.Config{Servers: redis.Servers{Addresses: []string{address}}})
}

// unguarded is a client of one server whose breaker never opens.
func unguarded(address string, silence time.Duration) *redis.Client {
	return client(redis.Config{
		Servers: redis.Servers{Addresses: []string{address}}, Silence: silence,
		Breaker: breaker.Config{Failures: 1 << 30},
	})
}

// ring is a client of servers that know nothing of each other.
func ring(all ...*servers.Redis) *redis.Client {
	s := redis.Servers{Kind: redis.Ring}
	for _, server := range all {
		s.Addresses = append(s.Addresses, server.Addr)
	}
	return client(redis.Config{Servers: s})
}

// open is NewRedis, patient unless the test sets that, closed when the test ends.
func open(t testing.TB, c RedisConfig) *Redis {
	t.Helper()
	if c.Patience == 0 {
		c.Patience = patient
	}
	r := NewRedis(c)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return r
}

// keyOf is a key of the test's own, so that tests do not share counters. Keys of different names live in
// different homes where a store has several.
func keyOf(t testing.TB, name string) string { return fmt.Sprintf("rl1:{%s|%s}:k", t.Name(), name) }

// charge is one charge of such a key.
func charge(t testing.TB, name string, l limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Key: keyOf(t, name), Limit: l, Cost: cost}
}

func bucket(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: window, Burst: count}
}

// with changes the mode of a charge.
func with(c limit.Charge, m limit.Mode) limit.Charge {
	c.Mode = m
	return c
}

// op changes what a charge does.
func op(c limit.Charge, o limit.Op) limit.Charge {
	c.Op = o
	return c
}

// each makes a charge one of a descriptor tree.
func each(c limit.Charge) limit.Charge {
	c.Each = true
	return c
}

// requestOf is a request with these charges.
func requestOf(charges ...limit.Charge) *limit.Request {
	return &limit.Request{Charges: charges, Decisions: make([]limit.Decision, len(charges))}
}

// spend decides the charges of one request, as the engine does.
func spend(s Counter, charges ...limit.Charge) []limit.Decision {
	r := requestOf(charges...)
	if !s.Try(r) {
		s.Ask(context.Background(), r)
	}
	return r.Decisions
}

// peek is what is left.
func peek(s Counter, c limit.Charge) limit.Decision {
	c.Op, c.Cost, c.Penalty, c.Each, c.Mode = limit.Peek, 1, nil, false, limit.Enforced
	r := requestOf(c)
	s.Peek(context.Background(), r)
	return r.Decisions[0]
}

// want fails the test unless a decision is this.
func want(t testing.TB, what string, d limit.Decision, outcome limit.Outcome, charged, remaining int64) {
	t.Helper()
	if d.Outcome != outcome || d.Charged != charged || d.Remaining != remaining {
		t.Fatalf("%s: outcome %d charged %d remaining %d (%s), want outcome %d charged %d remaining %d",
			what, d.Outcome, d.Charged, d.Remaining, d.Reason, outcome, charged, remaining)
	}
}

// wantLeft fails the test unless the counter has this many left.
func wantLeft(t testing.TB, s Counter, c limit.Charge, left int64) {
	t.Helper()
	d := peek(s, c)
	if d.Remaining != left || d.Outcome == limit.Undecided {
		t.Fatalf("%s: %d left (%s), want %d", c.Key, d.Remaining, d.Reason, left)
	}
}

// wantAbout allows for the time a test takes.
func wantAbout(t testing.TB, what string, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-time.Minute {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// awaitAllowed waits until the store decides.
func awaitAllowed(t testing.TB, r *Redis, c limit.Charge) {
	t.Helper()
	servers.Await(t, "a decision", func() error {
		if d := spend(r, c)[0]; d.Outcome != limit.Allowed {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
}

// notYet is an error until something holds.
func notYet(holds bool) error {
	if holds {
		return nil
	}
	return fmt.Errorf("not yet")
}

// crowd makes n calls by eight callers.
func crowd(n int, call func(i int)) {
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			for i := caller; i < n; i += 8 {
				call(i)
			}
		})
	}
	all.Wait()
}
