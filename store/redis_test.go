package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// info is a number that a server shows about itself.
func info(t testing.TB, server *servers.Redis, section, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + pattern + `(\d+)`).FindStringSubmatch(
		fmt.Sprint(server.Do(t, "INFO", section)))
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(found[1], 10, 64)
	return n
}

// runs is how often a server ran a script.
func runs(t testing.TB, server *servers.Redis) int64 {
	t.Helper()
	const section = "commandstats"
	return info(t, server, section, "cmdstat_evalsha:calls=") + info(t, server, section, "cmdstat_eval:calls=")
}

func TestEveryKeyHasATTL(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr)})
	eachAlgorithm(t, 10, func(t *testing.T, l limit.Limit) {
		rule, tree := penalized(charge(t, "rule", l, 11), strict(1)), each(charge(t, "tree", l, 11))
		spend(r, rule)
		spend(r, charge(t, "rule", l, 1))
		spend(r, tree)
		for _, key := range []string{rule.Key, limit.PunishKeys(&rule)[1], tree.Key} {
			ttl := server.Do(t, "PTTL", key).(int64)
			if ttl <= 0 || ttl > (2*year+time.Hour).Milliseconds() {
				t.Errorf("PTTL of %s is %d ms, want one within two windows", key, ttl)
			}
		}
	})
}

// TestAWipeGivesOneLimitMore: what a server forgets, it admits again, once.
func TestAWipeGivesOneLimitMore(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr), DenialEntries: -1})
	eachAlgorithm(t, 5, func(t *testing.T, l limit.Limit) {
		admitted := 0
		for i := range 30 {
			if i == 10 {
				server.Do(t, "FLUSHALL")
			}
			if spend(r, charge(t, "wiped", l, 1))[0].Outcome == limit.Allowed {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("%d admitted, want 5 before the wipe and 5 after it", admitted)
		}
	})
}

func TestADenialWritesNothing(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr), DenialEntries: -1})
	eachAlgorithm(t, 5, func(t *testing.T, l limit.Limit) {
		spent, room := charge(t, "spent", l, 5), charge(t, "room", l, 1)
		spend(r, spent)
		spend(r, room)
		dump := func() (all string) {
			for _, key := range []string{spent.Key, room.Key} {
				all += fmt.Sprint(server.Do(t, "DUMP", key), server.Do(t, "PEXPIRETIME", key))
			}
			return all
		}
		before := dump()
		for range 5 {
			spend(r, spent, room)
		}
		if after := dump(); after != before {
			t.Fatalf("denials changed the keys from %q to %q", before, after)
		}
	})
}

func TestQuestionsCreateNoKey(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr)})
	eachAlgorithm(t, 5, func(t *testing.T, l limit.Limit) {
		spend(r, op(charge(t, "peek", l, 1), limit.Peek))
		spend(r, op(charge(t, "refund", l, 1), limit.Refund))
		spend(r, charge(t, "too much", l, 6))
		peek(r, charge(t, "usage", l, 1))
		wantKeys(t, server)
	})
}

// TestAFloodCostsOneQuestionPerKeyAndSecond: what is known of a spent counter answers.
func TestAFloodCostsOneQuestionPerKeyAndSecond(t *testing.T) {
	server := servers.StartRedis(t)
	now := time.Now()
	r := open(t, RedisConfig{Main: at(server.Addr), Now: func() time.Time { return now }})
	c := charge(t, "k", bucket(3, year), 1)
	for range 4 {
		spend(r, c)
	}
	before := runs(t, server)
	for range 3 {
		now = now.Add(time.Second)
		for range 100 {
			want(t, "a spent counter", spend(r, c)[0], limit.Refused, 0, 0)
		}
	}
	if n := runs(t, server) - before; n != 3 {
		t.Errorf("300 requests in 3 seconds cost %d runs, want 3", n)
	}
}

func TestHangingUpDoesNotInterrupt(t *testing.T) {
	r := open(t, RedisConfig{Main: at(servers.StartRedis(t).Addr)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := requestOf(charge(t, "k", bucket(3, year), 1))
	r.Ask(ctx, request)
	want(t, "the request of a caller that hung up", request.Decisions[0], limit.Allowed, 1, 2)
}

func TestFiftyThousandBucketsFitInTenMegabytes(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr)})
	l := bucket(100, time.Hour)
	spend(r, charge(t, "k", l, 1))
	before := info(t, server, "memory", "used_memory:")
	for i := range 1000 {
		var charges []limit.Charge
		for j := range 100 {
			key := fmt.Sprintf("rl1:{shop|client-%05d|/api/v1/orders}:user+endpoint:per-endpoint:1:tb", i%500*100+j)
			charges = append(charges, limit.Charge{Key: key, Limit: l, Cost: 1})
		}
		spend(r, charges...)
	}
	if n := server.Do(t, "DBSIZE").(int64); n != 50_001 {
		t.Fatalf("%d keys, want 50,001", n)
	}
	grown := info(t, server, "memory", "used_memory:") - before
	t.Logf("50,000 token buckets take %d bytes, %d each", grown, grown/50_000)
	if grown > 10_000_000 {
		t.Fatalf("50,000 token buckets take %d bytes, want at most 10,000,000", grown)
	}
}

// TestFourSidecarsAdmitExactlyTheLimit, with all that they keep in front of the server.
func TestFourSidecarsAdmitExactlyTheLimit(t *testing.T) {
	server := servers.StartRedis(t)
	var all []*Redis
	for range 4 {
		all = append(all, open(t, RedisConfig{Main: at(server.Addr)}))
	}
	eachAlgorithm(t, 50, func(t *testing.T, l limit.Limit) {
		for round := range 10 {
			var admitted, lost atomic.Int64
			crowd(256, func(i int) {
				switch spend(all[i%4], charge(t, fmt.Sprint(round), l, 1))[0].Outcome {
				case limit.Allowed:
					admitted.Add(1)
				case limit.Undecided:
					lost.Add(1)
				}
			})
			if admitted.Load() != 50 || lost.Load() != 0 {
				t.Fatalf("round %d admitted %d and lost %d, want 50 and none", round, admitted.Load(), lost.Load())
			}
		}
	})
}

func TestAnObserverSeesEachTripAndHowItEnds(t *testing.T) {
	server := servers.StartRedis(t)
	var seen []string
	observe := func(_ context.Context, name string, charges int) func(string) {
		if name != server.Addr {
			t.Errorf("a trip to %q, want %q", name, server.Addr)
		}
		return func(reason string) { seen = append(seen, fmt.Sprint(charges, " ", reason)) }
	}
	r := open(t, RedisConfig{Main: at(server.Addr), OnTrip: observe})
	one := charge(t, "one", bucket(1, year), 1)
	spend(r, one)
	spend(r, one) // refused by Redis
	spend(r, one) // refused by what is known: no trip
	server.Kill(t)
	spend(r, charge(t, "two", bucket(1, year), 1))
	if len(seen) != 3 || seen[0] != "1 " || seen[1] != "1 " || seen[2] == "1 " {
		t.Errorf("trips %q, want two that were decided and one with a reason", seen)
	}
}

func TestAStoreStartsWithoutAServerAndCloses(t *testing.T) {
	server := servers.StartRedis(t)
	server.Kill(t)
	var reasons atomic.Int64
	r := NewRedis(RedisConfig{Main: at(server.Addr), Leases: true, OnError: func(reason string, err error) {
		if reason == redis.ReasonDial && err != nil {
			reasons.Add(1)
		}
	}})
	c := charge(t, "k", bucket(1000, year), 1)
	if d := spend(r, c)[0]; d.Reason != redis.ReasonDial || d.Unknown || reasons.Load() != 1 {
		t.Errorf("decided %+v with %d errors, want undecided because it cannot be reached, and one", d, reasons.Load())
	}
	server.Start(t)
	awaitAllowed(t, r, c)
	err := r.Close()
	if d := spend(r, c)[0]; err != nil || d.Outcome != limit.Undecided || d.Reason != redis.ReasonShutdown {
		t.Errorf("after Close, with error %v: %+v, want undecided because it is closed", err, d)
	}
}

// TestACounterWithAForeignValueHeals: its request is undecided, it is deleted once, and counts again. What shares its
// requests stays.
func TestACounterWithAForeignValueHeals(t *testing.T) {
	server := servers.StartRedis(t)
	for name, foreign := range map[string][]string{
		"a list": {"RPUSH", "x"}, "a hash": {"HSET", "f", "x"}, "garbage": {"SET", "garbage"},
		"bytes": {"SET", "\xff\x00x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, RedisConfig{Main: at(server.Addr)})
			good, bad := charge(t, "k", bucket(10, year), 1), charge(t, "k", bucket(10, year), 1)
			bad.Key += ":bad"
			spend(r, good)
			server.Do(t, append([]string{foreign[0], bad.Key}, foreign[1:]...)...)
			d := spend(r, good, bad)
			if d[0].Reason != limit.ReasonBeside || d[1].Reason != limit.ReasonForeign || d[1].Unknown {
				t.Fatalf("decisions %+v, want both undecided because of a foreign value", d)
			}
			servers.Await(t, "a decision", func() error {
				if d := spend(r, good, bad); d[1].Outcome != limit.Allowed {
					return fmt.Errorf("%+v", d)
				}
				return nil
			})
			awaitHealed(t, r)
			want(t, "after", spend(r, good)[0], limit.Allowed, 1, 7)
		})
	}
}

// awaitHealed waits until one counter is healed.
func awaitHealed(t *testing.T, r *Redis) {
	t.Helper()
	servers.Await(t, "one healed counter", func() error { return notYet(r.Stats().Calls.Healed == 1) })
}

// TestAPenaltyWithAForeignValueHeals: its refusals do not count until then.
func TestAPenaltyWithAForeignValueHeals(t *testing.T) {
	server := servers.StartRedis(t)
	for i := range 2 {
		t.Run(fmt.Sprint("list ", i), func(t *testing.T) {
			r := open(t, RedisConfig{Main: at(server.Addr)})
			c := penalized(charge(t, "k", bucket(1, year), 2), strict(1))
			server.Do(t, "SET", limit.PunishKeys(&c)[i], "garbage")
			servers.Await(t, "a cool-down", func() error { return notYet(spend(r, c)[0].Penalized) })
			awaitHealed(t, r)
		})
	}
}
