package limit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	us  = time.Microsecond
	ms  = time.Millisecond
	sec = time.Second
	mnt = time.Minute
)

// future is the year 2100, the beginning of a day: at a time that has passed, Redis would remove the keys at once.
const future = 4_102_444_800_000_000

func bucket(count int64, window time.Duration, burst int64) Limit {
	return Limit{Algorithm: TokenBucket, Count: count, Window: window, Burst: burst}
}

func sliding(count int64, window time.Duration) Limit {
	return Limit{Algorithm: SlidingWindow, Count: count, Window: window}
}

func fixed(count int64, window time.Duration) Limit {
	return Limit{Algorithm: FixedWindow, Count: count, Window: window}
}

func logged(count int64, window time.Duration) Limit {
	return Limit{Algorithm: SlidingLog, Count: count, Window: window}
}

// lua runs the scripts of this package on a Redis server of its own.
type lua struct {
	t      testing.TB
	client *redis.Client
}

func startLua(t testing.TB, settings ...string) lua {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t, settings...).Addr})
	t.Cleanup(func() { client.Close() })
	return lua{t, client}
}

// order is a request of a call.
type order struct {
	charges []Charge
	refused bool
}

// eval runs a script at an instant in µs, 0 for the server's clock.
func (l lua) eval(s *Script, now int64, keys, args []string) ([]int64, error) {
	words := []any{decimal(now)}
	for _, a := range args {
		words = append(words, a)
	}
	return redis.NewScript(s.Text).Run(context.Background(), l.client, keys, words...).Int64Slice()
}

// decide decides requests in one call, at an instant in µs, 0 for the server's clock.
func (l lua) decide(s *Script, now int64, orders ...order) ([][]Decision, error) {
	var keys, args []string
	sizes := make([]int, len(orders))
	for i, o := range orders {
		keys, args, sizes[i] = s.Append(keys, args, o.charges, o.refused)
	}
	reply, err := l.eval(s, now, keys, args)
	if err != nil {
		return nil, err
	}
	decisions := make([][]Decision, len(orders))
	for i, from := 0, 1; i < len(orders); i++ {
		decisions[i] = make([]Decision, len(orders[i].charges))
		own := append([]int64{reply[0]}, reply[from:from+sizes[i]]...)
		if err := s.Decide(own, orders[i].charges, decisions[i]); err != nil {
			return nil, err
		}
		from += sizes[i]
	}
	return decisions, nil
}

// charge decides one request at an instant in µs.
func (l lua) charge(now int64, charges ...Charge) []Decision {
	l.t.Helper()
	decisions, err := l.decide(ScriptOf(charges), now, order{charges: charges})
	if err != nil {
		l.t.Fatalf("charge %+v: %v", charges, err)
	}
	return decisions[0]
}

func (l lua) punish(now int64, c *Charge) int64 {
	l.t.Helper()
	reply, err := l.eval(Punish, now, PunishKeys(c), PunishArguments(c))
	if err != nil || len(reply) != 2 || reply[0] != now && now != 0 {
		l.t.Fatalf("punish at %d: %v, %v", now, reply, err)
	}
	return reply[1]
}

// value is what a key holds, with the last ms of its life; "" for no key.
func (l lua) value(key string) string {
	l.t.Helper()
	ctx := context.Background()
	text, err := l.client.Get(ctx, key).Result()
	if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") {
		var items []string
		items, err = l.client.LRange(ctx, key, 0, -1).Result()
		text = strings.Join(items, " ")
	}
	if err == redis.Nil {
		return ""
	}
	if err != nil {
		l.t.Fatalf("read %s: %v", key, err)
	}
	last, err := l.client.PExpireTime(ctx, key).Result()
	if err != nil {
		l.t.Fatalf("read the life of %s: %v", key, err)
	}
	return text + " until " + strconv.FormatInt(last.Milliseconds(), 10)
}

// text is the counter as Redis holds it.
func (c *Counter) text(a Algorithm) string {
	var b strings.Builder
	fmt.Fprint(&b, c.first)
	switch {
	case c.expires == 0:
		return ""
	case a.KeepsLog():
		for _, e := range c.entries {
			fmt.Fprintf(&b, " %d %d", e.at, e.sum)
		}
	case c.lent+c.older > 0:
		fmt.Fprintf(&b, " %d %d %d %d", c.second, c.lent, c.older, c.ends)
	case c.second > 0:
		fmt.Fprintf(&b, " %d", c.second)
	}
	return fmt.Sprintf("%s until %d", &b, c.expires)
}

// memory decides by the Go twins.
type memory struct {
	counters map[string]*Counter
	coolings map[string]*Cooling
}

func newMemory() *memory { return &memory{map[string]*Counter{}, map[string]*Cooling{}} }

func (m *memory) counter(key string) *Counter {
	if m.counters[key] == nil {
		m.counters[key] = new(Counter)
	}
	return m.counters[key]
}

func (m *memory) cooling(key string) *Cooling {
	if m.coolings[key] == nil {
		m.coolings[key] = new(Cooling)
	}
	return m.coolings[key]
}

func (m *memory) decide(now int64, o order) []Decision {
	counters, coolings := make([]*Counter, len(o.charges)), make([]*Cooling, len(o.charges))
	for i := range o.charges {
		counters[i] = m.counter(o.charges[i].Key)
		if o.charges[i].Penalty != nil {
			coolings[i] = m.cooling(o.charges[i].PenaltyKey)
		}
	}
	decisions := make([]Decision, len(o.charges))
	Decide(now, o.refused, o.charges, counters, coolings, decisions)
	return decisions
}
