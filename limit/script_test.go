package limit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestScriptOf(t *testing.T) {
	leaf := Charge{Key: "k", Limit: fixed(5, mnt), Cost: 1, Each: true}
	with := func(change func(*Charge)) Charge {
		c := leaf
		change(&c)
		return c
	}
	for name, row := range map[string]struct {
		charge Charge
		want   *Script
	}{
		"a leaf":              {leaf, Tree},
		"a shadow leaf":       {with(func(c *Charge) { c.Mode = Shadow }), Tree},
		"a quota":             {with(func(c *Charge) { c.Mode = Quota }), Together},
		"not charged alone":   {with(func(c *Charge) { c.Each = false }), Together},
		"a cost of 0":         {with(func(c *Charge) { c.Cost = 0 }), Together},
		"a peek":              {with(func(c *Charge) { c.Op = Peek }), Together},
		"a refund":            {with(func(c *Charge) { c.Op = Refund }), Together},
		"a penalty":           {with(func(c *Charge) { c.Penalty = &Penalty{} }), Together},
		"a calendar":          {with(func(c *Charge) { c.Limit.Calendar = calendarDays }), Together},
		"a bucket":            {with(func(c *Charge) { c.Limit = bucket(5, mnt, 5) }), Together},
		"a sliding window":    {with(func(c *Charge) { c.Limit = sliding(5, mnt) }), Together},
		"a log":               {with(func(c *Charge) { c.Limit = logged(5, mnt) }), Log},
		"without a limit":     {with(func(c *Charge) { c.Limit = Limit{} }), Together},
		"a cost above int53":  {with(func(c *Charge) { c.Cost = 1 << 62 }), Tree},
		"a window below a ms": {with(func(c *Charge) { c.Limit.Window = us }), Tree},
	} {
		for _, charges := range [][]Charge{{row.charge}, {leaf, row.charge}, {row.charge, leaf}} {
			if got := ScriptOf(charges); got != row.want {
				t.Errorf("%s: %s, want %s", name, got.Name, row.want.Name)
			}
		}
	}
}

// TestForeignValue: a key that holds another kind of value fails its own request, and nothing of that is taken.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	l, ctx := startLua(t), context.Background()
	values := map[string][]any{
		"hash": {"HSET", "wrong", "a", "b"}, "text": {"SET", "wrong", "abc"}, "negative": {"SET", "wrong", "-3"},
		"fraction": {"SET", "wrong", "1.5"}, "infinite": {"SET", "wrong", "inf"},
		"packed": {"SET", "wrong", "\x41\x42\x00"},
		"list":   {"RPUSH", "wrong", "a", "b"}, "huge": {"SET", "wrong", "9223372036854775807"},
	}
	limits := map[string]Limit{
		"bucket": bucket(5, mnt, 5), "fixed": fixed(5, mnt), "sliding": sliding(5, mnt), "log": logged(5, mnt),
	}
	for kind, command := range values {
		for name, limit := range limits {
			good := Charge{Key: "good", Limit: fixed(5, mnt), Cost: 1}
			orders := []order{
				{charges: []Charge{good, {Key: "wrong", Limit: limit, Cost: 1}, good}},
				{charges: []Charge{{Key: "beside", Limit: fixed(5, mnt), Cost: 1}}},
			}
			l.client.FlushAll(ctx)
			must.Do(t, l.client.Do(ctx, command...).Err())
			before, _ := l.client.Dump(ctx, "wrong").Result()
			got, err := l.decide(ScriptOf(orders[0].charges), 0, orders...)
			if err != nil {
				t.Fatalf("%s under a %s: %v", name, kind, err)
			}
			reasons := fmt.Sprint(got[0][0].Reason, " ", got[0][1].Reason, " ", got[0][2].Reason)
			outcomes := got[0][0].Outcome + got[0][1].Outcome + got[0][2].Outcome
			if reasons != "beside wrongtype beside" || outcomes != Undecided {
				t.Errorf("%s under a %s: %+v", name, kind, got[0])
			}
			if got[1][0].Outcome != Allowed {
				t.Errorf("beside %s under a %s: %+v", name, kind, got[1])
			}
			after, _ := l.client.Dump(ctx, "wrong").Result()
			if left, _ := l.client.Exists(ctx, "good").Result(); left != 0 || before != after {
				t.Errorf("%s under a %s: the request has changed something", name, kind)
			}
		}
	}
}

func TestForeignValueOfTree(t *testing.T) {
	t.Parallel()
	l, ctx := startLua(t), context.Background()
	leaf := Charge{Key: "good", Limit: fixed(5, mnt), Cost: 2, Each: true}
	wrong := leaf
	wrong.Key = "wrong"
	for _, command := range [][]any{
		{"HSET", "wrong", "a", "b"}, {"SET", "wrong", "abc"}, {"RPUSH", "wrong", "1"},
		{"SET", "wrong", "9223372036854775807"},
	} {
		l.client.FlushAll(ctx)
		must.Do(t, l.client.Do(ctx, command...).Err())
		got := l.charge(0, leaf, wrong, leaf)
		if got[1].Outcome != Undecided || got[1].Reason != ReasonForeign {
			t.Errorf("%v: %+v", command, got[1])
		}
		if got[0].Remaining != 3 || got[2].Remaining != 1 {
			t.Errorf("%v: others must be charged by themselves: %+v", command, got)
		}
	}
}

// TestServerThatRefusesWrites: an error that is not about the value fails the call, and is not taken for a foreign
// value.
func TestServerThatRefusesWrites(t *testing.T) {
	t.Parallel()
	limits := []Limit{bucket(100, mnt, 100), fixed(100, mnt), sliding(100, mnt), logged(100, mnt)}
	prepare := func(t *testing.T) lua {
		l := startLua(t)
		for _, limit := range limits {
			c := Charge{Key: limit.Algorithm.String(), Limit: limit, Cost: 1}
			l.charge(0, c)
			c.Key += "2"
			for range 3 {
				l.charge(0, c)
			}
		}
		l.charge(0, Charge{Key: "tree", Limit: fixed(9, mnt), Cost: 1, Each: true})
		l.punish(0, offender())
		return l
	}
	for name, row := range map[string]struct {
		command []any
		want    []string
	}{
		"without memory": {[]any{"CONFIG", "SET", "maxmemory", "1"}, []string{"OOM"}},
		"a replica":      {[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"NOREPLICAS"}},
		"no permission": {
			[]any{"ACL", "SETUSER", "default", "-set", "-rpush", "-lset", "-incrby"},
			[]string{"NOPERM", "ACL", "can't"},
		},
		"no permission to read": {
			[]any{"ACL", "SETUSER", "default", "-get", "-lrange", "-lindex", "-incrby"},
			[]string{"NOPERM", "ACL", "can't"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := prepare(t)
			must.Do(t, l.client.Do(context.Background(), row.command...).Err())
			charges := []Charge{{Key: "tree", Limit: fixed(9, mnt), Cost: 1, Each: true}}
			for _, limit := range limits {
				for _, key := range []string{limit.Algorithm.String(), limit.Algorithm.String() + "2", "new"} {
					charges = append(charges, Charge{Key: key, Limit: limit, Cost: 1})
				}
			}
			for _, c := range charges {
				got, err := l.decide(ScriptOf([]Charge{c}), 0, order{charges: []Charge{c}})
				checkFailure(t, fmt.Sprint(c.Key, " ", c.Limit.Algorithm, " ", got), err, row.want)
			}
			c := offender()
			_, err := l.eval(Punish, 0, PunishKeys(c), PunishArguments(c))
			checkFailure(t, "penalty", err, row.want)
		})
	}
}

func checkFailure(t *testing.T, what string, err error, words []string) {
	t.Helper()
	for _, word := range words {
		if err != nil && strings.Contains(err.Error(), word) {
			return
		}
	}
	t.Errorf("%s: the error is %v, want one of %q", what, err, words)
}

func offender() *Charge {
	return &Charge{
		Key: "spent", Limit: fixed(0, time.Hour), Cost: 1, PenaltyKey: "penalty",
		Penalty: &Penalty{Threshold: 3, Window: mnt, CoolDown: 10 * sec, Multipliers: []int64{1, 2, 4}},
	}
}

// TestWindowsOnTheServersClock: in no window more is taken than its count, by either script and by both together.
func TestWindowsOnTheServersClock(t *testing.T) {
	t.Parallel()
	l := startLua(t)
	const count = 4
	for _, window := range []time.Duration{ms, 3 * ms, 20 * ms} {
		taken := map[int64]int64{}
		c := Charge{Key: window.String(), Limit: fixed(count, window), Cost: 1, Each: true}
		for i := range 1500 {
			script := []*Script{Tree, Together}[i%2]
			got := must.Get(l.decide(script, 0, order{charges: []Charge{c}}))(t)
			taken[got[0][0].At+got[0][0].ResetAfter.Microseconds()] += got[0][0].Charged
		}
		sum := int64(0)
		for end, n := range taken {
			sum += n
			if n > count || end%window.Microseconds() != 0 {
				t.Errorf("window of %v that ends at %d: %d taken of %d", window, end, n, count)
			}
		}
		if sum == 0 {
			t.Errorf("window of %v: nothing was taken", window)
		}
	}
}

// TestNewWindowInItsLastMillisecond: a key whose last ms is the present one may be deleted at once, so the next window
// counts.
func TestNewWindowInItsLastMillisecond(t *testing.T) {
	t.Parallel()
	l := startLua(t)
	days := Limit{Algorithm: FixedWindow, Count: 9, Window: 24 * time.Hour, Calendar: calendarDays}
	for name, row := range map[string]struct {
		limit Limit
		end   int64 // of a window
		next  time.Duration
	}{
		"fixed":                 {fixed(9, sec), future + 5_000_000, sec},
		"calendar":              {days, calendarDays.Edges[2], 25 * time.Hour},
		"beyond the calendar":   {days, calendarDays.Edges[3], 25 * time.Hour},
		"before the calendar":   {days, calendarDays.Edges[1], 23 * time.Hour},
		"after the next window": {days, calendarDays.Edges[3] + (25 * time.Hour).Microseconds(), 25 * time.Hour},
	} {
		for _, before := range []int64{1, 999, 1000, 1001} {
			c := Charge{Key: fmt.Sprint(name, before), Limit: row.limit, Cost: 2}
			m, now := newMemory(), row.end-before
			want := time.Duration(before) * us
			if before <= 1000 {
				want += row.next
			}
			redis, twin := l.charge(now, c)[0], m.decide(now, order{charges: []Charge{c}})[0]
			if redis.ResetAfter != want || twin != redis {
				t.Errorf("%s, %dµs before its end: %+v, want a reset after %v; Go %+v", name, before, redis, want, twin)
			}
			c.Op, now = Peek, now+want.Microseconds()-1
			if got := l.charge(now, c)[0]; got.Remaining != 7 || got.ResetAfter != us {
				t.Errorf("%s, at the end of what was charged %dµs before the border: %+v", name, before, got)
			}
		}
	}
}

// TestTreeAgrees: within a window tree.lua decides what charge.lua decides.
func TestTreeAgrees(t *testing.T) {
	t.Parallel()
	l := startLua(t)
	for i, costs := range [][]int64{{1, 1, 1, 1, 1, 1}, {3, 3, 3}, {5, 1}, {6, 1}, {2, 9, 1}, {1 << 60, 1}} {
		for _, count := range []int64{0, 1, 5, MaxCount} {
			for _, into := range []int64{0, 1234, 59_998_999, 59_999_000, 59_999_999} {
				m, charges := newMemory(), []Charge(nil)
				for _, cost := range costs {
					key := fmt.Sprint("tree", i, " ", count, " ", into)
					charges = append(charges, Charge{Key: key, Limit: fixed(count, mnt), Cost: cost, Each: true})
				}
				got := must.Get(l.decide(Tree, future+into, order{charges: charges}))(t)
				for j := range charges {
					want := m.decide(future+into, order{charges: charges[j : j+1]})[0]
					if j > 0 && into >= 59_999_000 { // the reply does not show that the next window counts
						got[0][j].ResetAfter, got[0][j].RetryAfter = want.ResetAfter, want.RetryAfter
					}
					if got[0][j] != want {
						t.Errorf("costs %v, count %d, %dµs into the window, charge %d:\nTree %+v\nGo   %+v",
							costs, count, into, j, got[0][j], want)
					}
				}
			}
		}
	}
}

// TestCounterHasALife: no key is left without a time to live.
func TestCounterHasALife(t *testing.T) {
	t.Parallel()
	l, ctx := startLua(t), context.Background()
	for _, limit := range []Limit{bucket(100, mnt, 100), fixed(100, mnt), sliding(100, mnt), logged(100, mnt)} {
		for _, op := range []Op{Spend, Refund, Debit, Lend, Peek} {
			l.charge(0, Charge{Key: limit.Algorithm.String(), Limit: limit, Cost: 2, Op: op, Parts: 4})
		}
	}
	l.charge(0, Charge{Key: "tree", Limit: fixed(9, mnt), Cost: 10, Each: true})
	for range 4 {
		l.punish(0, offender())
	}
	keys, err := l.client.Keys(ctx, "*").Result()
	if err != nil || len(keys) != 6 {
		t.Fatalf("keys %q, %v", keys, err)
	}
	for _, key := range keys {
		if life := l.client.PTTL(ctx, key).Val(); life <= 0 {
			t.Errorf("%s lives for %v", key, life)
		}
	}
}
