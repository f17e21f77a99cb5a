package store

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMemoryKeepsPenaltiesUnderAMillionIdentities(t *testing.T) {
	const bound = 50_000
	m := NewMemory(MemoryConfig{MaxKeys: bound})
	guilty := punished(charge(t, "guilty", bucket(1, time.Minute), 2), limit.Penalty{Threshold: 3, Window: time.Hour, CoolDown: 12 * time.Hour})
	for range 3 {
		spend(m, guilty)
	}
	charges := []limit.Charge{{Limit: bucket(10, time.Minute), Cost: 11, Penalty: &limit.Penalty{Threshold: 3, Window: time.Minute, CoolDown: time.Minute}}}
	decisions := make([]limit.Decision, 1)
	for i := range identities {
		charges[0].Key = fmt.Sprintf("rl1:{api|user=%d}:user:per-user:1:tb", i)
		charges[0].PenaltyKey = fmt.Sprintf("rl1:{api|user=%d}:user:per-user:penalty:pn", i)
		m.Spend(context.Background(), charges, decisions)
	}
	if s := m.Stats(); s.Keys != bound || s.Evicted != identities+1-bound {
		t.Errorf("%+v, want %d keys and %d evicted", s, bound, identities+1-bound)
	}
	wantPenalty(t, "the penalised client", spend(m, guilty)[0], 12*time.Hour)
	wantInOrder(t, m)
}

func TestMemoryForgetsARecordThatIsOver(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{Now: clock.Now})
	c := punished(charge(t, "k", bucket(1, time.Minute), 2), limit.Penalty{Threshold: 3, Window: time.Minute, CoolDown: time.Minute})
	spend(m, c)
	if keys := m.Stats().Keys; keys != 1 {
		t.Fatalf("%d keys after a refusal, want its record", keys)
	}
	clock.Turn(time.Minute)
	c.Cost = 1
	spend(m, c)
	if s := m.Stats(); s.Keys != 1 || s.Expired != 1 {
		t.Fatalf("%+v, want the counter alone", s)
	}
	wantInOrder(t, m)
}

func TestMemoryPenaltyAllocatesNothingForAClientWithoutRefusals(t *testing.T) {
	m := NewMemory(MemoryConfig{})
	charges := []limit.Charge{punished(charge(t, "k", bucket(1_000_000, time.Hour), 1), strict(3))}
	decisions := make([]limit.Decision, 1)
	m.Spend(context.Background(), charges, decisions)
	got := testing.AllocsPerRun(1000, func() { m.Spend(context.Background(), charges, decisions) })
	if got > poolAllocs {
		t.Fatalf("%v allocations, want %d", got, poolAllocs)
	}
}

// TestRefusalWritesItsRecordAlone: the counters stay as they are, and the record has its time.
func TestRefusalWritesItsRecordAlone(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, DenialEntries: -1})
	settled(t, e, r)
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		p := limit.Penalty{Threshold: 3, Window: 10 * time.Minute, CoolDown: 20 * time.Minute}
		spent, sibling := punished(charge(t, "spent", l, 1), p), charge(t, "sibling", l, 1)
		spend(r, charge(t, "spent", l, 5), charge(t, "sibling", l, 2))
		before := dump(e, spent.Key, sibling.Key)
		for i, ttl := range []time.Duration{10 * time.Minute, 10 * time.Minute, 30 * time.Minute} {
			wantCalls(t, e, "a refusal", 1, func() { spend(r, spent, sibling) })
			left := e.do("PTTL", spent.PenaltyKey).(int64)
			if got := time.Duration(left) * time.Millisecond; got > ttl+2*time.Millisecond || got < ttl-time.Minute {
				t.Fatalf("after %d refusals the record lives for %v, want %v", i+1, got, ttl)
			}
		}
		recorded := dump(e, spent.PenaltyKey)
		spend(r, spent, sibling)
		if after := dump(e, spent.Key, sibling.Key); after != before {
			t.Fatalf("refusals changed the counters from %q to %q", before, after)
		}
		if after := dump(e, spent.PenaltyKey); after != recorded {
			t.Fatalf("a refusal in the cool-down changed the record from %q to %q", recorded, after)
		}
		e.do("FLUSHDB")
	})
}

// TestForeignValueUnderAPenaltyKey: the charge stays undecided, and nothing of the request is written.
func TestForeignValueUnderAPenaltyKey(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	c, other := punished(charge(t, "k", bucket(5, time.Hour), 1), strict(3)), charge(t, "other", bucket(5, time.Hour), 1)
	instant := []byte{0x43, 0x19, 0x0c, 0x0a, 0x51, 0x9c, 0x80, 0x00} // a whole number of microseconds
	for name, value := range map[string][]byte{
		"text":             []byte("hello"),
		"empty":            {0},
		"cut":              append([]byte{0}, instant[:7]...),
		"too many ends":    append([]byte{2}, instant...),
		"far too many":     append([]byte{17}, bytes.Repeat(instant, 17)...),
		"no whole number":  append([]byte{0}, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0),
		"negative":         append([]byte{1}, 0xc3, 0x19, 0x0c, 0x0a, 0x51, 0x9c, 0x80, 0x00),
		"not a number":     append([]byte{1}, bytes.Repeat([]byte{0xff}, 8)...),
		"not in order":     append(append([]byte{0}, instant...), make([]byte, 8)...),
		"ends not in line": append(append([]byte{2}, instant...), make([]byte, 8)...),
	} {
		e.do("SET", c.PenaltyKey, value)
		for _, d := range spend(r, other, c) {
			if d.Outcome != limit.Undecided {
				t.Errorf("%s: %+v, want undecided", name, d)
			}
		}
		if n := e.do("EXISTS", c.Key, other.Key).(int64); n != 0 {
			t.Errorf("%s: %d counters were written", name, n)
		}
	}
	e.do("DEL", c.PenaltyKey)
	c.PenaltyKey = c.Key
	if d := spend(r, c)[0]; d.Outcome != limit.Undecided {
		t.Errorf("a counter's key as a penalty's: %+v, want undecided", d)
	}
}

func TestCoolDownCostsRedisOneQuestionASecond(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	settled(t, e, r)
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		c := punished(charge(t, "k", l, 6), strict(2))
		wantCalls(t, e, "refusals that have to be recorded", 3, func() {
			for range 3 {
				spend(r, c)
			}
		})
		wantCalls(t, e, "a thousand in the cool-down", 0, func() {
			for range 1000 {
				d := spend(r, c)[0]
				wantPenalty(t, "in the cool-down", d, time.Hour)
				want(t, "what is left", d, limit.Refused, 0, 5)
				if !d.Cached {
					t.Fatalf("%+v, want one that says it was known", d)
				}
			}
		})
		other := c
		other.PenaltyKey += "2"
		wantCalls(t, e, "another penalty on that counter", 1, func() { wantPenalty(t, "its first refusal", spend(r, other)[0], 0) })
		clock.Turn(askAgain)
		wantCalls(t, e, "a second later", 1, func() { spend(r, c) })
	})
}

// TestCachedCoolDownEndsWithItsTime: its end is the server's, and is not waited for beyond.
func TestCachedCoolDownEndsWithItsTime(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	p := strict(1)
	p.CoolDown = time.Minute
	c := punished(charge(t, "k", bucket(5, year), 6), p)
	spend(r, c)
	if d := spend(r, c)[0]; !d.Penalized {
		t.Fatalf("%+v, want penalized", d)
	}
	clock.Turn(p.CoolDown)
	wantCalls(t, e, "after its end", 1, func() { spend(r, c) })
}

// TestCoolDownThatIsOnlyShownIsNotCached: neither does what was only shown refuse, nor does a known one refuse what only
// shows it.
func TestCoolDownThatIsOnlyShownIsNotCached(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	settled(t, e, r)
	eachAlgorithm(t, 1, year, func(t *testing.T, l limit.Limit) {
		c := punished(charge(t, "k", l, 2), strict(1))
		shown, dry := c, strict(1)
		dry.DryRun = true
		shown.Penalty = &dry
		wantCalls(t, e, "a cool-down that is only shown", 3, func() {
			for range 3 {
				spend(r, shown)
			}
		})
		wantPenalty(t, "one that is enforced", spend(r, c)[0], time.Hour)
		shown.Cost = 1
		want(t, "one that is only shown", spend(r, shown)[0], limit.Allowed, 1, 0)
	})
}

// TestSiblingWithAPenaltyIsAskedEachTime: it may have been spent meanwhile, and that would have to be recorded.
func TestSiblingWithAPenaltyIsAskedEachTime(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	l := bucket(10, year)
	spent, plain := charge(t, "spent", l, 11), charge(t, "sibling", l, 1)
	sibling := punished(plain, strict(1))
	spend(r, spent)
	spend(r, spent, plain)
	wantCalls(t, e, "a sibling without a penalty", 0, func() { spend(r, spent, plain) })
	wantCalls(t, e, "a sibling with a penalty", 3, func() {
		for range 3 {
			want(t, "sibling", spend(r, spent, sibling)[1], limit.Allowed, 0, 10)
		}
	})
}

func TestPardonElsewhereIsSeenWithinASecond(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	c := punished(charge(t, "k", bucket(1, year), 2), strict(1))
	for range 3 {
		spend(r, c)
	}
	e.do("DEL", c.PenaltyKey)
	wantPenalty(t, "at once", spend(r, c)[0], time.Hour)
	clock.Turn(askAgain)
	wantPenalty(t, "a second later", spend(r, c)[0], 0)
}

func TestPardonThatFailsSaysSo(t *testing.T) {
	r := NewRedis(RedisConfig{Servers: fleet.Servers{Network: "unix", Addresses: []string{t.TempDir() + "/nobody"}}})
	defer r.Close()
	if err := r.Pardon(context.Background(), []limit.Charge{punished(charge(t, "k", bucket(1, year), 1), strict(1))}); err == nil {
		t.Fatal("a pardon that reached no server did not fail")
	}
}

// TestThrottleBehindDenials: what may be taken in advance is asked, what is due too late is refused without asking.
func TestThrottleBehindDenials(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	c := charge(t, "k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: 10 * time.Second, Burst: 1}, 1)
	spend(r, c)
	spend(r, c)
	c.MaxWait = 15 * time.Second
	wantCalls(t, e, "a spent bucket that may be waited for", 1, func() {
		want(t, "the wait", spend(r, c)[0], limit.Allowed, 1, 0)
	})
	wantCalls(t, e, "the first that is due too late", 1, func() { want(t, "it", spend(r, c)[0], limit.Refused, 0, 0) })
	wantCalls(t, e, "further ones", 0, func() {
		for range 100 {
			want(t, "one of them", spend(r, c)[0], limit.Refused, 0, 0)
		}
	})
	c.MaxWait = 25 * time.Second
	wantCalls(t, e, "one with more time", 1, func() { want(t, "it", spend(r, c)[0], limit.Allowed, 1, 0) })
}
