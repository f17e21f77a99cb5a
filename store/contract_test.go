package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/servers"
)

// eachStore runs a contract test over every store.
func eachStore(t *testing.T, test func(t *testing.T, s Counter)) {
	t.Run("memory", func(t *testing.T) {
		test(t, memory.New(memory.Config{}))
	})
	server, second := servers.StartRedis(t), servers.StartRedis(t)
	for name, c := range map[string]func() RedisConfig{
		"redis":                 func() RedisConfig { return RedisConfig{Main: at(server.Addr)} },
		"redis without denials": func() RedisConfig { return RedisConfig{Main: at(server.Addr), DenialEntries: -1} },
		"redis with leases":     func() RedisConfig { return RedisConfig{Main: at(server.Addr), Leases: true} },
		"per-second redis": func() RedisConfig {
			return RedisConfig{Main: at(server.Addr), PerSecond: at(second.Addr)}
		},
		"ring": func() RedisConfig { return RedisConfig{Main: ring(server, second)} },
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, c())) })
	}
}

// eachCounter is eachStore, with limits of every algorithm.
func eachCounter(t *testing.T, count int64, test func(t *testing.T, s Counter, l limit.Limit)) {
	eachStore(t, func(t *testing.T, s Counter) {
		eachAlgorithm(t, count, func(t *testing.T, l limit.Limit) { test(t, s, l) })
	})
}

func eachAlgorithm(t *testing.T, count int64, test func(t *testing.T, l limit.Limit)) {
	for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			test(t, limit.Limit{Algorithm: a, Count: count, Window: year, Burst: count})
		})
	}
}

// step is one charge of a counter, and its decision.
type step struct {
	op        limit.Op
	each      bool
	cost      int64
	outcome   limit.Outcome
	charged   int64
	remaining int64
}

func TestContractOfACounter(t *testing.T) {
	const yes, no, peeking, giving = limit.Allowed, limit.Refused, limit.Peek, limit.Refund
	type promise struct {
		name  string
		steps []step
	}
	eachCounter(t, 10, func(t *testing.T, s Counter, l limit.Limit) {
		for _, p := range []promise{
			{"a cost is taken whole or not at all", []step{
				{0, false, 7, yes, 7, 3}, {0, false, 4, no, 0, 3}, {0, false, 3, yes, 3, 0}, {0, false, 1, no, 0, 0},
			}},
			{"a refused large cost leaves a small one its way", []step{
				{0, false, 8, yes, 8, 2}, {0, false, 5, no, 0, 2}, {0, false, 1, yes, 1, 1}, {0, false, 5, no, 0, 1},
			}},
			{"a cost above the burst never passes", []step{
				{0, false, 11, no, 0, 10}, {0, false, limit.MaxCost, no, 0, 10}, {0, false, 10, yes, 10, 0},
			}},
			{"a peek answers as a spend would and takes nothing", []step{
				{peeking, false, 10, yes, 0, 10}, {peeking, false, 11, no, 0, 10}, {0, false, 10, yes, 10, 0},
				{peeking, false, 1, no, 0, 0}, {peeking, false, 1, no, 0, 0},
			}},
			{"a refund gives back but never above full", []step{
				{giving, false, 4, yes, 0, 10}, {0, false, 10, yes, 10, 0}, {0, false, 1, no, 0, 0},
				{giving, false, 4, yes, -4, 4},
				{0, false, 1, yes, 1, 3}, {giving, false, 100, yes, -7, 10},
			}},
			{"a tree takes what is left", []step{
				{0, true, 7, yes, 7, 3}, {0, true, 7, no, 3, 0}, {0, true, 7, no, 0, 0}, {0, true, 1, no, 0, 0},
			}},
		} {
			left := int64(10)
			for i, step := range p.steps {
				c := op(charge(t, p.name, l, step.cost), step.op)
				c.Each = step.each
				want(t, fmt.Sprint(p.name, ", step ", i+1), spend(s, c)[0], step.outcome, step.charged, step.remaining)
				left = step.remaining
			}
			wantLeft(t, s, charge(t, p.name, l, 1), left)
		}
	})
}

// TestContractOfAWalk: each store answers random requests as the one in memory does.
func TestContractOfAWalk(t *testing.T) { eachStore(t, walk) }

func TestContractOfAReset(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s Counter, l limit.Limit) {
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
	})
}

func TestContractOfKeys(t *testing.T) {
	eachCounter(t, 1, func(t *testing.T, s Counter, l limit.Limit) {
		for _, name := range []string{"a", "b", "", "a:b", "\x00", "\xff\xfe", "{x}"} {
			want(t, "first charge of key "+name, spend(s, charge(t, name, l, 1))[0], limit.Allowed, 1, 0)
		}
	})
}

func TestContractOfAThrottle(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		const step = 19 * time.Second // and less while the test runs
		c := charge(t, "k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: step, Burst: 1}, 1)
		c.MaxWait = 2*step + time.Second
		spend(s, c)
		for due := step; due <= 2*step; due += step {
			d := spend(s, c)[0]
			want(t, "one that waits", d, limit.Allowed, 1, 0)
			if d.Wait > due || d.Wait < due-step {
				t.Fatalf("one that is due after %v at most waits for %v", due, d.Wait)
			}
		}
		want(t, "one too many", spend(s, c)[0], limit.Refused, 0, 0)
		refused := spend(s, charge(t, "waits", bucket(5, year), 5), c)
		want(t, "a charge beside one too many", refused[0], limit.Allowed, 0, 5)
		want(t, "a cancelled wait", spend(s, op(c, limit.Refund))[0], limit.Allowed, -1, 0)
		want(t, "the next one", spend(s, c)[0], limit.Allowed, 1, 0)
	})
}

// TestContractOfARequest: it is charged on all limits or on none, but for trees, which are charged also when it is
// refused.
func TestContractOfARequest(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s Counter, l limit.Limit) {
		spent, tree, rule := charge(t, "spent", l, 1), each(charge(t, "tree", l, 1)), charge(t, "rule", l, 1)
		for _, d := range spend(s, spent, tree, rule) {
			want(t, "while all have room", d, limit.Allowed, 1, 9)
		}
		spend(s, charge(t, "spent", l, 9))
		for i := range int64(3) {
			d := spend(s, spent, tree, rule)
			want(t, "the spent rule refuses", d[0], limit.Refused, 0, 0)
			want(t, "the tree counts", d[1], limit.Allowed, 1, 8-i)
			want(t, "the other rule does not", d[2], limit.Allowed, 0, 9)
		}
		spend(s, each(charge(t, "tree", l, 6)))
		for range 3 {
			d := spend(s, tree, rule)
			want(t, "the tree refuses", d[0], limit.Refused, 0, 0)
			want(t, "the rule is not charged", d[1], limit.Allowed, 0, 9)
		}
		wantLeft(t, s, rule, 9)
	})
}

func TestContractOfOneKeyTwice(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s Counter, l limit.Limit) {
		a, b := charge(t, "k", l, 3), charge(t, "k", l, 4)
		want(t, "both fit", spend(s, a, b)[1], limit.Allowed, 4, 3)
		if d := spend(s, a, b); !limit.Refuses([]limit.Charge{a, b}, d) {
			t.Fatalf("7 more of 3 left were admitted: %+v", d)
		}
		wantLeft(t, s, a, 3)
	})
}

// TestContractOfManyRequests: those that are asked together are decided each by itself.
func TestContractOfManyRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		var all []*limit.Request
		for i := range 20 {
			own, shared := charge(t, fmt.Sprint("own ", i), bucket(5, year), 1), charge(t, "shared", bucket(12, year),
				1)
			all = append(all, requestOf(own, shared))
		}
		s.Ask(t.Context(), all...)
		admitted := 0
		for _, r := range all {
			if !limit.Refuses(r.Charges, r.Decisions) {
				admitted++
			} else if r.Decisions[0].Charged != 0 {
				t.Errorf("a refused request was charged: %+v", r.Decisions)
			}
		}
		if admitted != 12 {
			t.Errorf("%d requests were admitted, want 12", admitted)
		}
	})
}
