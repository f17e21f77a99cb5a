package limit

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// walker makes random requests about a few counters, and compares what Redis and the Go twins decide and keep.
type walker struct {
	*rand.Rand
	t      *testing.T
	lua    lua
	memory *memory
	now    int64
	limits map[string][]Limit // by key: limits of one algorithm; the first is the usual one
	keys   []string
	leases []Charge // that were granted
}

var calendarDays = &Calendar{Edges: [4]int64{
	future - (24 * time.Hour).Microseconds(), future,
	future + (23 * time.Hour).Microseconds(), future + (48 * time.Hour).Microseconds(),
}}

func newWalker(t *testing.T, seed uint64, limits map[string][]Limit, keys ...string) *walker {
	w := &walker{
		Rand: rand.New(rand.NewPCG(seed, 1)), t: t, lua: startLua(t), memory: newMemory(), now: future + 12_345_678,
		limits: limits, keys: keys,
	}
	return w
}

// pass moves the clock: mostly a little, at times to a border or back.
func (w *walker) pass() {
	switch n := w.IntN(100); {
	case n < 45:
		w.now += w.Int64N(2000)
	case n < 75:
		w.now += w.Int64N(300_000)
	case n < 85:
		w.now += w.Int64N(8_000_000)
	case n < 93: // around the end of a window
		window := []int64{1000, 100_000, 1_000_000, 60_000_000}[w.IntN(4)]
		w.now += window - w.now%window + w.Int64N(2003) - 1001
	case n < 95:
		w.now += w.Int64N(200_000_000)
	case n < 97:
		w.now -= w.Int64N(400_000)
	case n < 98:
		w.now -= w.Int64N(100_000_000)
	}
}

func (w *walker) limit(key string) Limit {
	limits := w.limits[key]
	if w.IntN(60) == 0 {
		return limits[w.IntN(len(limits))]
	}
	return limits[0]
}

func (w *walker) cost(l Limit) int64 {
	switch w.IntN(12) {
	case 0:
		return 0
	case 1:
		return l.Capacity() + w.Int64N(3)
	case 2:
		return 1 + w.Int64N(max(l.Capacity(), 1))
	case 3:
		return MaxCost - w.Int64N(2)
	}
	return 1 + w.Int64N(3)
}

func (w *walker) charge() Charge {
	key := w.keys[w.IntN(len(w.keys))]
	c := Charge{Key: key, Limit: w.limit(key), Each: w.IntN(4) == 0}
	c.Cost = w.cost(c.Limit)
	c.Mode = []Mode{Enforced, Enforced, Enforced, Shadow, Quota}[w.IntN(5)]
	switch n := w.IntN(20); {
	case n < 3:
		c.Op = Peek
	case n < 6:
		c.Op = Refund
		if w.IntN(2) == 0 {
			c.Until = w.now + w.Int64N(3_000_000) - 300_000
		}
	case n == 6 && c.Limit.Algorithm == TokenBucket:
		c.Op = Debit
	}
	if c.Limit.Algorithm == TokenBucket && w.IntN(5) == 0 {
		c.MaxWait = time.Duration(w.Int64N(3_000_000)) * us
	}
	if w.IntN(6) == 0 {
		c.PenaltyKey = fmt.Sprint("penalty", w.IntN(3))
		c.Penalty = &Penalty{Threshold: 3, Window: 10 * sec, CoolDown: 700 * ms, Multipliers: []int64{1, 2, 5}}
		c.Penalty.DryRun = w.IntN(5) == 0
	}
	return c
}

// lease makes a request about a lease.
func (w *walker) lease() (Charge, bool) {
	key := w.keys[w.IntN(len(w.keys))]
	c := Charge{Key: key, Limit: w.limit(key), Op: Lend, Cost: 1 + w.Int64N(20), Parts: 1 + w.Int64N(4)}
	if n := len(w.leases); n > 0 && w.IntN(2) == 0 {
		given := w.leases[w.IntN(n)]
		given.Cost, given.Op = w.Int64N(given.Cost)+1, Spent+Op(w.IntN(2))
		return given, true
	}
	return c, c.Limit.Leasable()
}

func (w *walker) order() order {
	if w.IntN(8) == 0 {
		if c, ok := w.lease(); ok {
			return order{charges: []Charge{c}}
		}
	}
	o := order{refused: w.IntN(12) == 0}
	for range []int{1, 1, 1, 2, 3, 4, 6}[w.IntN(7)] {
		o.charges = append(o.charges, w.charge())
	}
	return o
}

// step decides some requests in one call, on both sides.
func (w *walker) step(number int) {
	w.pass()
	var orders []order
	var all []Charge
	for range 1 + w.IntN(4) {
		o := w.order()
		orders, all = append(orders, o), append(all, o.charges...)
	}
	script := ScriptOf(all)
	if script == Tree {
		script = Together
	}
	got, err := w.lua.decide(script, w.now, orders...)
	if err != nil {
		w.t.Fatalf("step %d: %v", number, err)
	}
	for i, o := range orders {
		want := w.memory.decide(w.now, o)
		if !reflect.DeepEqual(got[i], want) {
			w.t.Fatalf("step %d at %d after %+v\n%+v\nRedis %+v\nGo    %+v", number, w.now, orders[:i], o, got[i], want)
		}
		w.grant(o.charges[0], want[0])
	}
	for i, o := range orders {
		w.punish(number, o, got[i])
	}
	w.compare(number, all)
}

func (w *walker) grant(c Charge, d Decision) {
	if c.Op != Lend || d.Outcome != Allowed || c.Limit.Algorithm != TokenBucket {
		return
	}
	c.Cost, c.Until = d.Charged, d.At+d.Wait.Microseconds()
	if w.leases = append(w.leases, c); len(w.leases) > 6 {
		w.leases = w.leases[1:]
	}
}

func (w *walker) punish(number int, o order, decisions []Decision) {
	for i := range o.charges {
		c := &o.charges[i]
		if !c.Punishes(decisions[i]) {
			continue
		}
		redis, twin := w.lua.punish(w.now, c), w.memory.cooling(c.PenaltyKey).Punish(c.Penalty, w.now)
		if redis != twin {
			w.t.Fatalf("step %d at %d: penalty %s: Redis %d, Go %d", number, w.now, c.PenaltyKey, redis, twin)
		}
	}
}

// compare compares what is kept of the counters of some charges.
func (w *walker) compare(number int, charges []Charge) {
	for i := range charges {
		c := &charges[i]
		if redis, twin := w.lua.value(c.Key), w.memory.counter(c.Key).text(c.Limit.Algorithm); redis != twin {
			w.t.Fatalf("step %d at %d: %s\nRedis %s\nGo    %s", number, w.now, c.Key, redis, twin)
		}
	}
}

func walk(t *testing.T, steps int, limits map[string][]Limit, keys ...string) {
	t.Parallel()
	w := newWalker(t, uint64(len(t.Name())), limits, keys...)
	for number := range steps {
		w.step(number)
	}
}

func TestWalkOfBuckets(t *testing.T) {
	walk(t, 1800, map[string][]Limit{
		"even":   {bucket(100, sec, 100), bucket(50, sec, 50), bucket(100, mnt, 30), bucket(0, sec, 1)},
		"sevens": {bucket(7, sec, 9), bucket(11, 3*sec, 4), bucket(7, sec, 20)},
		"slow":   {bucket(3, mnt, 2), bucket(1, time.Hour, 2)},
		"large":  {bucket(1_000_000_007, time.Hour, 3_000_000_000), bucket(999_999_999_989, 7*sec, MaxCount)},
	}, "even", "even", "even", "sevens", "sevens", "slow", "large")
}

func TestWalkOfWindows(t *testing.T) {
	days := Limit{Algorithm: FixedWindow, Count: 40, Window: 24 * time.Hour, Calendar: calendarDays}
	walk(t, 1800, map[string][]Limit{
		"fixed":    {fixed(20, sec), fixed(0, sec), fixed(7, mnt), fixed(30, 100*ms)},
		"short":    {fixed(3, ms), fixed(5, 2*ms)},
		"sliding":  {sliding(20, sec), sliding(0, sec), sliding(13, mnt), sliding(5, sec), sliding(11, 300*ms)},
		"large":    {sliding(MaxCount, 70*sec), sliding(MaxCount-7, 3650*24*time.Hour)},
		"calendar": {days},
	}, "fixed", "fixed", "short", "sliding", "sliding", "large", "calendar")
}

func TestWalkOfLogs(t *testing.T) {
	walk(t, 2000, map[string][]Limit{
		"log":  {logged(20, sec), logged(0, sec), logged(9, 3*sec), logged(40, mnt)},
		"long": {logged(200, mnt)},
	}, "log", "log", "long")
}

func TestWalkOfAll(t *testing.T) {
	walk(t, 2000, map[string][]Limit{
		"bucket":  {bucket(100, sec, 40), bucket(30, sec, 90)},
		"fixed":   {fixed(30, sec)},
		"sliding": {sliding(30, sec)},
		"log":     {logged(30, sec)},
	}, "bucket", "fixed", "sliding", "log")
}
