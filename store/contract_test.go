package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// counter is what every store does.
type counter interface {
	Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision)
	Usage(ctx context.Context, charges []limit.Charge, decisions []limit.Decision)
	Reset(ctx context.Context, keys []string) error
}

// year is a window that no test sees the end of. Nothing comes back during a test, so counts are exact.
const year = 365 * 24 * time.Hour

// patient is a budget for tests that are not about time, on a machine that is busy with others.
const patient = 5 * time.Second

// eachStore runs a contract test over every store.
func eachStore(t *testing.T, test func(t *testing.T, s counter)) {
	t.Run("memory", func(t *testing.T) {
		test(t, NewMemory(MemoryConfig{}))
	})
	server := servers.StartRedis(t)
	t.Run("redis", func(t *testing.T) {
		test(t, openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, DB: 1}}))
	})
	t.Run("redis without denial cache", func(t *testing.T) {
		test(t, openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}, DB: 2}, DenialEntries: -1}))
	})
	ring := fleet.Servers{Kind: fleet.Ring, Addresses: []string{server.Addr, servers.StartRedis(t).Addr, servers.StartRedis(t).Addr}, DB: 3}
	t.Run("ring", func(t *testing.T) {
		test(t, openRedis(t, RedisConfig{Servers: ring}))
	})
}

// openRedis is NewRedis with a patient budget unless the test sets one, closed when the test ends.
func openRedis(t testing.TB, c RedisConfig) *Redis {
	t.Helper()
	if c.Budget == 0 {
		c.Budget = patient
		c.DialTimeout = max(c.DialTimeout, patient)
	}
	r := NewRedis(c)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return r
}

// eachAlgorithm runs a test with a limit of each algorithm.
func eachAlgorithm(t *testing.T, count int64, window time.Duration, test func(t *testing.T, l limit.Limit)) {
	for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			test(t, limit.Limit{Algorithm: a, Count: count, Window: window, Burst: count})
		})
	}
}

// eachCounter is eachStore and eachAlgorithm at once, the usual case.
func eachCounter(t *testing.T, count int64, test func(t *testing.T, s counter, l limit.Limit)) {
	eachStore(t, func(t *testing.T, s counter) {
		eachAlgorithm(t, count, year, func(t *testing.T, l limit.Limit) { test(t, s, l) })
	})
}

// charge is one charge of a key named after the test, so that no test meets another's counters. Keys of different names live in
// different places where a store has several.
func charge(t testing.TB, name string, l limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Key: fmt.Sprintf("rl1:{%s|%s}:k", t.Name(), name), Limit: l, Cost: cost}
}

// spend decides the charges of one request.
func spend(s counter, charges ...limit.Charge) []limit.Decision {
	decisions := make([]limit.Decision, len(charges))
	s.Spend(context.Background(), charges, decisions)
	return decisions
}

// want fails the test unless a decision says this.
func want(t *testing.T, what string, d limit.Decision, outcome limit.Outcome, charged, remaining int64) {
	t.Helper()
	if d.Outcome != outcome || d.Charged != charged || d.Remaining != remaining {
		t.Fatalf("%s: outcome %d charged %d remaining %d (%s), want outcome %d charged %d remaining %d",
			what, d.Outcome, d.Charged, d.Remaining, d.Reason, outcome, charged, remaining)
	}
}

// wantLeft fails the test unless the counter has this many left.
func wantLeft(t *testing.T, s counter, c limit.Charge, left int64) {
	t.Helper()
	d := usage(s, c)
	if d.Remaining != left || d.Outcome == limit.Undecided {
		t.Fatalf("usage of %s: %d left (%s), want %d", c.Key, d.Remaining, d.Reason, left)
	}
}

func usage(s counter, c limit.Charge) limit.Decision {
	decisions := make([]limit.Decision, 1)
	s.Usage(context.Background(), []limit.Charge{c}, decisions)
	return decisions[0]
}

func TestSpendToTheLimitAndNoFurther(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s counter, l limit.Limit) {
		c := charge(t, "k", l, 1)
		for i := range int64(5) {
			want(t, fmt.Sprintf("spend %d", i+1), spend(s, c)[0], limit.Allowed, 1, 4-i)
		}
		want(t, "spend 6", spend(s, c)[0], limit.Refused, 0, 0)
		want(t, "spend 7", spend(s, c)[0], limit.Refused, 0, 0)
	})
}

func TestCostIsTakenWholeOrNotAtAll(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		want(t, "cost 7 of 10", spend(s, charge(t, "k", l, 7))[0], limit.Allowed, 7, 3)
		want(t, "cost 4 of 3", spend(s, charge(t, "k", l, 4))[0], limit.Refused, 0, 3)
		want(t, "cost 3 of 3", spend(s, charge(t, "k", l, 3))[0], limit.Allowed, 3, 0)
		want(t, "cost 1 of 0", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
	})
}

func TestRefusalOfALargeCostLeavesASmallOneItsWay(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		spend(s, charge(t, "k", l, 8))
		want(t, "cost 5 of 2", spend(s, charge(t, "k", l, 5))[0], limit.Refused, 0, 2)
		want(t, "cost 1 of 2", spend(s, charge(t, "k", l, 1))[0], limit.Allowed, 1, 1)
		want(t, "cost 5 of 1", spend(s, charge(t, "k", l, 5))[0], limit.Refused, 0, 1)
	})
}

func TestCostAboveTheBurstNeverPasses(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		want(t, "cost 11 of 10", spend(s, charge(t, "k", l, 11))[0], limit.Refused, 0, 10)
		want(t, "cost 2^53 of 10", spend(s, charge(t, "k", l, limit.MaxCost))[0], limit.Refused, 0, 10)
		want(t, "cost 10 of 10", spend(s, charge(t, "k", l, 10))[0], limit.Allowed, 10, 0)
	})
}

func TestCountZeroRefusesEverything(t *testing.T) {
	eachCounter(t, 0, func(t *testing.T, s counter, l limit.Limit) {
		want(t, "first", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
		want(t, "second", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
	})
}

func TestPeekAnswersAsASpendWouldAndTakesNothing(t *testing.T) {
	eachCounter(t, 2, func(t *testing.T, s counter, l limit.Limit) {
		peek := charge(t, "k", l, 1)
		peek.Op = limit.Peek
		want(t, "peek at a fresh counter", spend(s, peek)[0], limit.Allowed, 0, 2)
		spend(s, charge(t, "k", l, 2))
		want(t, "peek at a spent counter", spend(s, peek)[0], limit.Refused, 0, 0)
		want(t, "peek again", spend(s, peek)[0], limit.Refused, 0, 0)
	})
}

func TestRefundGivesBackButNeverAboveFull(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		refund := charge(t, "k", l, 4)
		refund.Op = limit.Refund
		spend(s, charge(t, "k", l, 10))
		want(t, "spent", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
		want(t, "refund 4", spend(s, refund)[0], limit.Allowed, -4, 4)
		want(t, "spend the refund", spend(s, charge(t, "k", l, 1))[0], limit.Allowed, 1, 3)
		refund.Cost = 100
		want(t, "refund 100", spend(s, refund)[0], limit.Allowed, -7, 10)
		wantLeft(t, s, refund, 10)
	})
}

func TestDebitGoesBelowZeroButNotBelowMinusCount(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		l := limit.Limit{Algorithm: limit.TokenBucket, Count: 10, Window: year, Burst: 10}
		debit := charge(t, "k", l, 15)
		debit.Op = limit.Debit
		want(t, "debit 15 of 10", spend(s, debit)[0], limit.Allowed, 15, 0)
		debit.Cost = limit.MaxCost
		want(t, "debit 2^53 of -5", spend(s, debit)[0], limit.Allowed, 5, 0)
		want(t, "debit 2^53 of -10", spend(s, debit)[0], limit.Allowed, 0, 0)
		refund := charge(t, "k", l, 11)
		refund.Op = limit.Refund
		want(t, "refund 11 of -10", spend(s, refund)[0], limit.Allowed, -11, 1)
	})
}

func TestRetryAndResetAfter(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		l := limit.Limit{Algorithm: limit.TokenBucket, Count: 10, Window: 10 * time.Hour, Burst: 10}
		d := spend(s, charge(t, "k", l, 10))[0]
		wantAbout(t, "reset after the last token", d.ResetAfter, 10*time.Hour)
		wantAbout(t, "retry after on an admitted charge", d.RetryAfter, 0)
		d = spend(s, charge(t, "k", l, 3))[0]
		wantAbout(t, "retry after of cost 3", d.RetryAfter, 3*time.Hour)
		wantAbout(t, "reset after on a refusal", d.ResetAfter, 10*time.Hour)
		d = spend(s, charge(t, "k", l, 11))[0]
		wantAbout(t, "retry after of a cost that cannot pass", d.RetryAfter, 10*time.Hour)
	})
}

// wantAbout allows for the time a test takes.
func wantAbout(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-time.Minute {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}
