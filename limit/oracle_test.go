package limit

import (
	"math/big"
	"math/rand/v2"
	"sort"
	"testing"
	"time"
)

// oracle counts in rational numbers, as README.md describes it, and finds waits by trying instants. It knows nothing of
// units, of what is stored, or of a clock that is set back.
type oracle interface {
	left(c *Charge, at int64) *big.Rat // tokens, negative in debt
	take(c *Charge, n *big.Rat, at int64)
	used(at int64) *big.Rat // that a refund can give back
	full(c *Charge, at int64) bool
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// floorRat rounds down.
func floorRat(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

// rateRat is the tokens of a bucket per µs.
func rateRat(l *Limit) *big.Rat { return big.NewRat(l.Count, l.Window.Microseconds()) }

// owing is a bucket: it owes so many tokens at an instant.
type owing struct {
	tokens *big.Rat
	at     int64
	rate   *big.Rat
}

func (o *owing) used(at int64) *big.Rat {
	if o.tokens == nil {
		return rat(0)
	}
	back := new(big.Rat).Mul(o.rate, rat(at-o.at))
	if back.Cmp(o.tokens) > 0 {
		return rat(0)
	}
	return back.Sub(o.tokens, back)
}

func (o *owing) left(c *Charge, at int64) *big.Rat {
	return new(big.Rat).Sub(rat(c.Limit.Burst), o.used(at))
}

func (o *owing) take(c *Charge, n *big.Rat, at int64) {
	*o = owing{new(big.Rat).Add(o.used(at), n), at, rateRat(&c.Limit)}
}

func (o *owing) full(_ *Charge, at int64) bool { return o.used(at).Sign() == 0 }

// taking is one entry of all other algorithms.
type taking struct{ at, tokens int64 }

// takings are what was taken, oldest first. A fixed window counts it at its start.
type takings struct {
	all    []taking
	window int64
	kind   Algorithm

	now, start int64 // the instant that is decided, and from when on what counts then
}

// between sums what was taken from an instant on until another.
func (o *takings) between(from, until int64) int64 {
	sum := int64(0)
	for _, t := range o.all {
		if t.at >= from && t.at < until {
			sum += t.tokens
		}
	}
	return sum
}

// counting is from when on takings count in full at an instant. In the last ms of a fixed window that counts nothing
// the next one counts.
func (o *takings) counting(at int64) int64 {
	start := at - at%o.window
	switch {
	case o.kind == SlidingLog:
		return at - o.window + 1
	case o.kind == FixedWindow && at == o.now:
		return o.start
	case o.kind == FixedWindow && start+o.window-at <= 1000 && o.between(start, start+1) == 0:
		return start + o.window
	}
	return start
}

// decideAt sets the instant that is decided.
func (o *takings) decideAt(now int64) {
	o.now = 0
	o.start = o.counting(now)
	o.now = now
}

func (o *takings) used(at int64) *big.Rat {
	from := o.counting(at)
	return rat(o.between(from, max(at, from)+1))
}

func (o *takings) left(c *Charge, at int64) *big.Rat {
	left := new(big.Rat).Sub(rat(c.Limit.Count), o.used(at))
	if o.kind != SlidingWindow {
		return left
	}
	start := at - at%o.window
	weight := new(big.Rat).Mul(rat(o.between(start-o.window, start)), big.NewRat(start+o.window-at, o.window))
	return left.Add(left, rat(floorRat(weight.Neg(weight))))
}

func (o *takings) take(c *Charge, n *big.Rat, at int64) {
	if o.kind == FixedWindow {
		at = o.counting(at)
	}
	tokens := floorRat(n)
	for n := range o.all { // a refund: the newest first, of a log the oldest that counts
		i := len(o.all) - 1 - n
		if o.kind == SlidingLog {
			i = n
		}
		if o.kind != SlidingLog || o.all[i].at >= o.counting(at) {
			back := max(min(o.all[i].tokens, -tokens), 0)
			o.all[i].tokens, tokens = o.all[i].tokens-back, tokens+back
		}
	}
	o.all = append(o.all, taking{at, tokens})
	if len(o.all) > 200 {
		o.all = o.all[100:]
	}
}

func (o *takings) full(c *Charge, at int64) bool {
	if o.kind == FixedWindow {
		return at%o.window == 0
	}
	return o.left(c, at).Cmp(rat(c.Limit.Count)) == 0
}

// first is the first instant after now at which something holds that stays so.
func first(now, most int64, holds func(at int64) bool) time.Duration {
	return micros(int64(sort.Search(int(most), func(i int) bool { return holds(now + int64(i)) })))
}

// judge decides a charge that is alone in its request by the oracle.
func judge(o oracle, c *Charge, now int64) Decision {
	d := Decision{Outcome: Allowed, At: now}
	if w, ok := o.(*takings); ok {
		w.decideAt(now)
	}
	cost, taken := rat(c.Cost), rat(0)
	fits := func(at int64) bool { return o.left(c, at).Cmp(cost) >= 0 }
	most := 4 * max(c.Limit.Window.Microseconds(), c.Limit.Window.Microseconds()*c.Limit.Burst/c.Limit.Count)
	switch {
	case c.Op == Debit:
		taken = minRat(cost, rat(max(floorRat(new(big.Rat).Add(o.left(c, now), rat(c.Limit.Count))), 0)))
	case c.Op == Refund:
		taken.Neg(refundable(o, c, now))
	case fits(now):
		taken = cost
	case c.MaxWait > 0 && c.Cost <= c.Limit.Capacity() && first(now, most, fits) <= c.MaxWait:
		taken, d.Wait = cost, first(now, most, fits)
	default:
		d.Outcome = Refused
		if left := floorRat(o.left(c, now)); c.Each && left > 0 {
			taken = rat(left)
		}
	}
	if c.Op == Peek {
		taken, d.Wait = rat(0), 0
	}
	if taken.Sign() != 0 {
		o.take(c, taken, now)
	}
	d.Charged = floorRat(taken)
	d.Remaining = max(floorRat(o.left(c, now)), 0)
	d.ResetAfter = resetOf(o, c, now, most)
	if d.Outcome == Refused && c.Cost > c.Limit.Capacity() {
		d.RetryAfter = d.ResetAfter
	} else if d.Outcome == Refused {
		d.RetryAfter = first(now, most, fits)
	}
	return d
}

func resetOf(o oracle, c *Charge, now, most int64) time.Duration {
	if w, ok := o.(*takings); ok && c.Limit.Algorithm == FixedWindow {
		return micros(w.counting(now) + w.window - now)
	}
	return first(now, most, func(at int64) bool { return o.full(c, at) })
}

// refundable is what a refund gives back.
func refundable(o oracle, c *Charge, now int64) *big.Rat {
	back := minRat(rat(c.Cost), o.used(now))
	if c.Until > 0 && now >= c.Until {
		return rat(0)
	}
	if c.Until > 0 && c.Limit.Algorithm == TokenBucket {
		unit := big.NewRat(gcd(c.Limit.Window.Microseconds(), c.Limit.Count), c.Limit.Window.Microseconds())
		earns := new(big.Rat).Mul(rateRat(&c.Limit), rat(c.Until-now-1))
		back = minRat(back, earns.Add(earns, unit))
	}
	return back
}

// TestOracle holds the Go twin, which the walks hold to Redis, to the oracle.
func TestOracle(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Limit{
		"bucket": bucket(100, sec, 100), "sevens": bucket(7, sec, 9), "slow": bucket(3, mnt, 2),
		"small burst": bucket(11, 3*sec, 2),
		"fixed":       fixed(9, sec), "short": fixed(3, 2*ms), "sliding": sliding(17, sec),
		"sliding, short": sliding(5, 3*ms),
		"log":            logged(9, sec), "log, short": logged(3, 4*ms),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			askOracle(t, l, rand.New(rand.NewPCG(uint64(len(name)), 7)))
		})
	}
}

func askOracle(t *testing.T, l Limit, random *rand.Rand) {
	var o oracle = &takings{window: l.Window.Microseconds(), kind: l.Algorithm}
	if l.Algorithm == TokenBucket {
		o = &owing{}
	}
	m, now := newMemory(), int64(future)
	for i := range 1500 {
		now += oracleStep(l, random)
		c := Charge{Key: "k", Limit: l, Cost: random.Int64N(4), Each: random.IntN(4) == 0}
		switch random.IntN(12) {
		case 0:
			c.Cost = random.Int64N(2*l.Capacity()) + 1
		case 1, 2:
			c.Op = Peek
		case 3, 4:
			c.Op, c.Until = Refund, now+random.Int64N(3*l.Window.Microseconds())-l.Window.Microseconds()/2
		case 5:
			c.Op = Refund
		case 6, 7:
			if l.Algorithm == TokenBucket {
				c.MaxWait = time.Duration(random.Int64N(int64(l.Window)))
			}
		case 8:
			if l.Algorithm == TokenBucket {
				c.Op = Debit
			}
		}
		got := m.decide(now, order{charges: []Charge{c}})[0]
		if want := judge(o, &c, now); got != want {
			t.Fatalf("step %d at %d: %+v\ndecided %+v\noracle  %+v", i, now, c, got, want)
		}
	}
}

// oracleStep is how much time passes.
func oracleStep(l Limit, random *rand.Rand) int64 {
	window := l.Window.Microseconds()
	switch random.IntN(10) {
	case 0:
		return random.Int64N(3 * window)
	case 1, 2:
		return random.Int64N(window/4 + 1)
	case 3, 4, 5:
		return 0
	}
	return random.Int64N(window/(l.Count+1)*2 + 1)
}
