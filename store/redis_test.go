package store

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// eye looks into a redis-server from aside.
type eye struct {
	t      testing.TB
	client *redis.Client
}

func look(t testing.TB, server *servers.Redis, options redis.Options) eye {
	t.Helper()
	options.Addr = server.Addr
	c := redis.NewClient(&options)
	t.Cleanup(func() { c.Close() })
	return eye{t: t, client: c}
}

// do runs a command that has to work.
func (e eye) do(args ...any) any {
	e.t.Helper()
	reply, err := e.client.Do(context.Background(), args...).Result()
	if err != nil {
		e.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// calls is how often the server ran a command, by INFO commandstats.
func (e eye) calls(command string) int64 {
	e.t.Helper()
	stats := e.do("INFO", "commandstats").(string)
	found := regexp.MustCompile(`(?m)^cmdstat_` + regexp.QuoteMeta(command) + `:calls=(\d+)`).FindStringSubmatch(stats)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(found[1], 10, 64)
	return n
}

// settled waits until the store has greeted the server, so that nothing but requests moves the counts.
func settled(t testing.TB, e eye, r *Redis) {
	t.Helper()
	servers.Await(t, "the store's connections", func() error {
		if e.calls("script|load") == 0 || r.Stats().Fleet.Idle < 4 {
			return fmt.Errorf("stats %+v", r.Stats())
		}
		return nil
	})
}

func TestEveryKeyHasATTL(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	eachAlgorithm(t, 10, year, func(t *testing.T, l limit.Limit) {
		spend(r, charge(t, "rule", l, 1))
		spend(r, each(charge(t, "tree", l, 11)))
		for _, name := range []string{"rule", "tree"} {
			ttl := e.do("PTTL", charge(t, name, l, 1).Key).(int64)
			if ttl <= 0 || ttl > (2*year+time.Minute).Milliseconds() {
				t.Errorf("PTTL of %s is %d ms, want one within two windows", name, ttl)
			}
		}
	})
}

// TestAWipeGivesOneLimitMore: what a server forgets, it admits again, once.
func TestAWipeGivesOneLimitMore(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, DenialEntries: -1})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		admitted := 0
		for i := range 30 {
			if i == 10 {
				e.do("FLUSHALL")
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

func TestDenialWritesNothing(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, DenialEntries: -1})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		spent, sibling := charge(t, "spent", l, 1), charge(t, "sibling", l, 1)
		spend(r, charge(t, "spent", l, 5))
		spend(r, charge(t, "sibling", l, 2))
		before := dump(e, spent.Key, sibling.Key)
		for range 5 {
			spend(r, spent, sibling)
			spend(r, each(spent))
			spend(r, sibling, charge(t, "sibling", l, 4))
		}
		if after := dump(e, spent.Key, sibling.Key); after != before {
			t.Fatalf("denials changed the keys from %q to %q", before, after)
		}
	})
}

// dump is what the keys hold and how long they live (to the minute).
func dump(e eye, keys ...string) string {
	var s strings.Builder
	for _, key := range keys {
		expires := e.do("PEXPIRETIME", key).(int64)
		fmt.Fprintf(&s, "%s %d ", e.do("DUMP", key), expires)
	}
	return s.String()
}

func TestQuestionsCreateNoKey(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		peek, refund := charge(t, "peek", l, 1), charge(t, "refund", l, 1)
		peek.Op, refund.Op = limit.Peek, limit.Refund
		spend(r, peek)
		spend(r, refund)
		spend(r, charge(t, "too much", l, 6))
		usage(r, charge(t, "usage", l, 1))
		if n := e.do("DBSIZE").(int64); n != 0 {
			t.Fatalf("%d keys after questions only: %v", n, e.do("KEYS", "*"))
		}
	})
}

func TestOneScriptCallAndOneRoundTripPerRequest(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	settled(t, e, r)
	l := bucket(1000, time.Hour)
	before := e.calls("evalsha")
	for range 100 {
		spend(r, charge(t, "a", l, 1), charge(t, "b", l, 1), each(charge(t, "c", l, 1)))
	}
	if n := e.calls("evalsha") - before; n != 100 {
		t.Errorf("%d EVALSHA for 100 requests", n)
	}
	if n := e.calls("eval"); n != 0 {
		t.Errorf("%d EVAL, want none: the script was there", n)
	}
	if s := r.Stats(); s.Trips != 100 || s.ScriptsLoaded != 0 {
		t.Errorf("stats %+v, want 100 trips and no script loaded", s)
	}
}

func TestScriptIsLoadedAgain(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	settled(t, e, r)
	l := bucket(10, time.Hour)
	spend(r, charge(t, "k", l, 1))
	for range 3 {
		e.do("SCRIPT", "FLUSH")
		spend(r, charge(t, "k", l, 1))
		spend(r, charge(t, "k", l, 1))
	}
	wantLeft(t, r, charge(t, "k", l, 1), 3)
	if got, evals := r.Stats().ScriptsLoaded, e.calls("eval"); got != 3 || evals != 3 {
		t.Fatalf("%d scripts loaded by %d EVAL after 3 flushes, want 3 by 3", got, evals)
	}
}

func TestTimeIsTheServers(t *testing.T) {
	server := servers.StartRedis(t)
	clock := newHand() // months away from the server's
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, Now: clock.Now})
	l := limit.Limit{Algorithm: limit.FixedWindow, Count: 3, Window: 24 * time.Hour}
	servers.Inside(t, l.Window, 9*time.Second)
	spend(r, charge(t, "k", l, 3))
	d := spend(r, charge(t, "k", l, 1))[0]
	now := time.Now().UTC()
	wantAbout(t, "reset after", d.ResetAfter, now.Truncate(24*time.Hour).Add(24*time.Hour).Sub(now)+time.Minute/2)
}

func TestHangingUpDoesNotInterrupt(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	decisions := make([]limit.Decision, 1)
	r.Spend(ctx, []limit.Charge{charge(t, "k", bucket(3, time.Hour), 1)}, decisions)
	want(t, "spend of a caller that hung up", decisions[0], limit.Allowed, 1, 2)
}

func TestUnixSocketPasswordAndDatabase(t *testing.T) {
	server := servers.StartRedis(t, "--requirepass", "sesame")
	l := bucket(3, time.Hour)
	for name, c := range map[string]RedisConfig{
		"socket": {Servers: fleet.Servers{Network: "unix", Addresses: []string{server.Socket}, Password: "sesame", DB: 3}},
		"tcp":    {Servers: fleet.Servers{Addresses: []string{server.Addr}, Username: "default", Password: "sesame", DB: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, "first", spend(openRedis(t, c), charge(t, "k", l, 1))[0], limit.Allowed, 1, 2)
			n := look(t, server, redis.Options{Password: "sesame", DB: c.DB}).do("DBSIZE").(int64)
			if n != 1 {
				t.Fatalf("%d keys in database %d, want 1", n, c.DB)
			}
		})
	}
}

func TestFiftyThousandBucketsFitInTenMegabytes(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	settled(t, e, r)
	before := usedMemory(e)
	l := bucket(70, time.Hour) // has a remainder once time has passed
	for i := range 1000 {
		var charges []limit.Charge
		for j := range 100 {
			key := fmt.Sprintf("rl1:{shop|client-%05d|/api/v1/orders}:user+endpoint:per-endpoint:1:tb", i%500*100+j)
			charges = append(charges, limit.Charge{Key: key, Limit: l, Cost: 1})
		}
		spend(r, charges...)
	}
	if n := e.do("DBSIZE").(int64); n != 50_000 {
		t.Fatalf("%d keys, want 50,000", n)
	}
	grown := usedMemory(e) - before
	t.Logf("50,000 token buckets take %d bytes, %d each", grown, grown/50_000)
	if grown > 10_000_000 {
		t.Fatalf("50,000 token buckets take %d bytes, want at most 10,000,000", grown)
	}
}

func usedMemory(e eye) int64 {
	found := regexp.MustCompile(`(?m)^used_memory:(\d+)`).FindStringSubmatch(e.do("INFO", "memory").(string))
	n, _ := strconv.ParseInt(found[1], 10, 64)
	return n
}
