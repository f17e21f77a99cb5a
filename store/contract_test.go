package store

import (
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/servers"
)

// promise is one that every store keeps, on a limit with this count.
type promise struct {
	name  string
	count int64
	test  func(t *testing.T, s Counter, l limit.Limit)
}

// keepPromises holds every store to them, with limits of every algorithm.
func keepPromises(t *testing.T, promises []promise) {
	eachStore(t, func(t *testing.T, s Counter) {
		for _, p := range promises {
			t.Run(p.name, func(t *testing.T) {
				for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
					l := limit.Limit{Algorithm: a, Count: p.count, Window: year, Burst: p.count}
					t.Run(a.String(), func(t *testing.T) { p.test(t, s, l) })
				}
			})
		}
	})
}

// eachStore runs a contract test over every store.
func eachStore(t *testing.T, test func(t *testing.T, s Counter)) {
	t.Run("memory", func(t *testing.T) {
		test(t, memory.New(memory.Config{}))
	})
	server := servers.StartRedis(t)
	for name, entries := range map[string]int{"redis": 0, "redis without denials": -1} {
		t.Run(name, func(t *testing.T) {
			test(t, open(t, RedisConfig{Main: at(server.Addr), DenialEntries: entries}))
		})
	}
	t.Run("redis with leases", func(t *testing.T) {
		test(t, open(t, RedisConfig{Main: at(server.Addr), Leases: true}))
	})
	t.Run("ring", func(t *testing.T) {
		test(t, open(t, RedisConfig{Main: ring(server, servers.StartRedis(t), servers.StartRedis(t))}))
	})
	t.Run("per-second", func(t *testing.T) {
		test(t, open(t, RedisConfig{Main: at(server.Addr), PerSecond: client(redis.Config{
			Servers: redis.Servers{Addresses: []string{servers.StartRedis(t).Addr}}, Prefix: "per-second ",
		})}))
	})
}

func TestContractOfOneCounter(t *testing.T) {
	keepPromises(t, []promise{
		{"it admits to the limit and no further", 5, admitsToTheLimit},
		{"a cost is taken whole or not at all", 10, takesACostWhole},
		{"a refused large cost leaves a small one its way", 10, leavesASmallCostItsWay},
		{"a cost above the burst never passes", 10, neverPassesACostAboveTheBurst},
		{"a count of zero refuses everything", 0, refusesAllOfZero},
		{"a peek answers as a spend would and takes nothing", 2, peeksWithoutTaking},
		{"a refund gives back but never above full", 10, refundsUpToFull},
		{"a reset makes a counter full", 3, resets},
		{"a raised limit keeps its count", 5, keepsTheCountOfARaisedLimit},
		{"a lowered limit holds at once", 10, lowersAtOnce},
		{"keys do not share counters", 1, keepsKeysApart},
		{"no charges are no request", 1, answersNoCharges},
	})
}

func admitsToTheLimit(t *testing.T, s Counter, l limit.Limit) {
	c := charge(t, "k", l, 1)
	for i := range int64(5) {
		want(t, "a token that is there", spend(s, c)[0], limit.Allowed, 1, 4-i)
	}
	want(t, "spend 6", spend(s, c)[0], limit.Refused, 0, 0)
	want(t, "spend 7", spend(s, c)[0], limit.Refused, 0, 0)
}

func takesACostWhole(t *testing.T, s Counter, l limit.Limit) {
	want(t, "cost 7 of 10", spend(s, charge(t, "k", l, 7))[0], limit.Allowed, 7, 3)
	want(t, "cost 4 of 3", spend(s, charge(t, "k", l, 4))[0], limit.Refused, 0, 3)
	want(t, "cost 3 of 3", spend(s, charge(t, "k", l, 3))[0], limit.Allowed, 3, 0)
	want(t, "cost 1 of 0", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
}

func leavesASmallCostItsWay(t *testing.T, s Counter, l limit.Limit) {
	spend(s, charge(t, "k", l, 8))
	want(t, "cost 5 of 2", spend(s, charge(t, "k", l, 5))[0], limit.Refused, 0, 2)
	want(t, "cost 1 of 2", spend(s, charge(t, "k", l, 1))[0], limit.Allowed, 1, 1)
	want(t, "cost 5 of 1", spend(s, charge(t, "k", l, 5))[0], limit.Refused, 0, 1)
}

func neverPassesACostAboveTheBurst(t *testing.T, s Counter, l limit.Limit) {
	want(t, "cost 11 of 10", spend(s, charge(t, "k", l, 11))[0], limit.Refused, 0, 10)
	want(t, "cost 2^53 of 10", spend(s, charge(t, "k", l, limit.MaxCost))[0], limit.Refused, 0, 10)
	want(t, "cost 10 of 10", spend(s, charge(t, "k", l, 10))[0], limit.Allowed, 10, 0)
}

func refusesAllOfZero(t *testing.T, s Counter, l limit.Limit) {
	want(t, "first", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
	want(t, "second", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
}

func peeksWithoutTaking(t *testing.T, s Counter, l limit.Limit) {
	look := op(charge(t, "k", l, 1), limit.Peek)
	want(t, "peek at a fresh counter", spend(s, look)[0], limit.Allowed, 0, 2)
	wantLeft(t, s, look, 2)
	spend(s, charge(t, "k", l, 2))
	want(t, "peek at a spent counter", spend(s, look)[0], limit.Refused, 0, 0)
	want(t, "peek again", spend(s, look)[0], limit.Refused, 0, 0)
	wantLeft(t, s, look, 0)
}

func refundsUpToFull(t *testing.T, s Counter, l limit.Limit) {
	refund := op(charge(t, "k", l, 4), limit.Refund)
	spend(s, charge(t, "k", l, 10))
	want(t, "spent", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
	want(t, "refund 4", spend(s, refund)[0], limit.Allowed, -4, 4)
	want(t, "spend the refund", spend(s, charge(t, "k", l, 1))[0], limit.Allowed, 1, 3)
	refund.Cost = 100
	want(t, "refund 100", spend(s, refund)[0], limit.Allowed, -7, 10)
	wantLeft(t, s, refund, 10)
}

func resets(t *testing.T, s Counter, l limit.Limit) {
	a, b := charge(t, "a", l, 3), charge(t, "b", l, 3)
	spend(s, a)
	spend(s, b)
	want(t, "before the reset", spend(s, a)[0], limit.Refused, 0, 0)
	err := s.Reset(t.Context(), []string{a.Key, "unknown"})
	if err != nil {
		t.Fatalf("reset: %v", err)
	}
	want(t, "after the reset", spend(s, a)[0], limit.Allowed, 3, 0)
	want(t, "a key that was not reset", spend(s, b)[0], limit.Refused, 0, 0)
}

func keepsTheCountOfARaisedLimit(t *testing.T, s Counter, l limit.Limit) {
	spend(s, charge(t, "k", l, 5))
	want(t, "spent", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
	l.Count, l.Burst = 10, 10
	d := spend(s, charge(t, "k", l, 1))[0]
	if d.Outcome != limit.Allowed && l.Algorithm != limit.TokenBucket || d.Remaining > 9 {
		t.Fatalf("after raising 5 to 10: outcome %d remaining %d, want allowed and at most 9 left", d.Outcome, d.Remaining)
	}
}

func lowersAtOnce(t *testing.T, s Counter, l limit.Limit) {
	spend(s, charge(t, "k", l, 6))
	l.Count, l.Burst = 5, 5
	d := spend(s, charge(t, "k", l, 6))[0]
	if d.Outcome != limit.Refused || d.Remaining > 5 {
		t.Fatalf("after lowering 10 to 5: outcome %d remaining %d, want refused and at most 5 left", d.Outcome, d.Remaining)
	}
}

func keepsKeysApart(t *testing.T, s Counter, l limit.Limit) {
	for _, name := range []string{"a", "b", "", "a:b", "\x00", "\xff\xfe", "{x}"} {
		want(t, "first charge of key "+name, spend(s, charge(t, name, l, 1))[0], limit.Allowed, 1, 0)
	}
}

func answersNoCharges(t *testing.T, s Counter, _ limit.Limit) {
	spend(s)
	s.Peek(t.Context(), requestOf())
	err := s.Reset(t.Context(), nil)
	if err != nil {
		t.Fatalf("reset of nothing: %v", err)
	}
}
