package limit

import (
	"math/bits"
	"time"
)

// exact is the largest integer up to which every integer is exact as a double, which is all that a script has.
const exact = 1 << 53

// algorithms as charge.lua numbers them: calendar windows are one of their own.
const (
	bucketTerms = iota + 1
	slidingTerms
	fixedTerms
	calendarTerms
	logTerms
)

// terms are the numbers of a charge as charge.lua gets them; its head describes them.
type terms struct {
	algorithm, penalty       byte
	op                       Op
	mode                     Mode
	each                     bool
	cost, most, window, fine int64
	debt, time               int64
}

// zeroDebt is the debt of a bucket of a limit of 0, in µs: so long that what another limit has left in it stays.
const zeroDebt = int64(MaxFill / time.Microsecond)

// termsOf returns the terms of a charge. A limit that Validate refuses is brought into bounds: it never admits without
// end.
func termsOf(c *Charge) terms {
	l := &c.Limit
	t := terms{algorithm: fixedTerms, op: c.Op, mode: c.Mode, each: c.Each, penalty: coolDownOf(c), fine: 1}
	t.cost, t.most, t.window = min(max(c.Cost, 0), MaxCost), min(l.Count, MaxCount), windowOf(l)
	if !l.Algorithm.known() || l.Count <= 0 || l.Burst < 0 && l.Algorithm.HasBurst() {
		t.most = -1 // it never admits
	}
	switch {
	case l.Algorithm == TokenBucket:
		t.bucket(c)
	case l.Algorithm == SlidingWindow:
		t.algorithm, t.fine = slidingTerms, max(scale(max(t.most, 0), t.window, exact), 1)
	case l.Algorithm.KeepsLog():
		t.algorithm = logTerms
	case l.Calendar != nil:
		t.calendar(l.Calendar)
	}
	t.times(c)
	return t
}

// windowOf is the window of a limit in µs, within its bounds.
func windowOf(l *Limit) int64 {
	window := min(max(l.Window, MinWindow), MaxWindow)
	return window.Milliseconds() * 1000
}

// times sets what depends on the op: the instant or length of time, and a cost of nothing.
func (t *terms) times(c *Charge) {
	switch c.Op {
	case Spend, Peek:
		if c.Limit.Algorithm.Lends() {
			t.time = throttleOf(c)
		}
	case Refund, Spent, Returned:
		t.time = max(c.Until, 0)
	case Lend:
		t.time = max(c.Parts, 1)
		if !c.Limit.Leasable() {
			t.cost = 0
		}
	}
	if t.most < 0 && t.op != Spend && t.op != Peek {
		t.cost = 0
	}
}

// coolDownOf is what a cool-down does to the charge, as charge.lua numbers it.
func coolDownOf(c *Charge) byte {
	switch {
	case !c.Penalizes():
		return 0
	case c.DryRun():
		return 2
	}
	return 1
}

// throttleOf is the longest wait of a charge, in µs.
func throttleOf(c *Charge) int64 {
	return max(min(c.MaxWait, LongestWait), 0).Microseconds()
}

// calendar sets the ends of the windows. One without length has the usual one.
func (t *terms) calendar(c *Calendar) {
	usual := t.window
	t.algorithm, t.window, t.fine, t.debt = calendarTerms, c.Edges[1], c.Edges[2], c.Edges[3]
	if t.debt <= t.fine {
		t.debt = t.fine + usual
	}
}

// bucket sets the units of a token and of a µs, in lowest terms.
func (t *terms) bucket(c *Charge) {
	t.algorithm = bucketTerms
	if t.most < 0 {
		t.debt = zeroDebt
		return
	}
	divisor := gcd(t.window, t.most)
	burst, unit, fine := min(c.Limit.Burst, MaxCount), t.window/divisor, t.most/divisor
	t.debt = max(t.window, LongestWait.Microseconds())
	if c.Op == Debit || !fits(burst, unit, fine, t.debt) {
		t.debt = max(t.window, throttleOf(c))
	}
	t.most, t.window, t.fine = coarsen(burst, unit, fine, t.debt)
	t.cost = min(t.cost, burst+t.debt*t.fine/t.window+1)
}

// fits reports whether all that a bucket can owe is exact.
func fits(burst, unit, fine, debt int64) bool {
	return product(burst+1, unit)+product(debt, fine) <= exact
}

// coarsen returns units with which all that a bucket can owe is exact. Where those of lowest terms are too fine, a
// token gets a little too many, so the rate is never too high.
func coarsen(burst, unit, fine, debt int64) (most, coarseUnit, coarseFine int64) {
	if fits(burst, unit, fine, debt) {
		return burst, unit, fine
	}
	fill := float64(burst+1)*float64(unit)/float64(fine) + float64(debt) // µs
	for f := min(int64(float64(exact-burst)/fill)+1, fine); ; f-- {
		u := scale(f, unit, fine)
		if f == 1 || fits(burst, u, f, debt) {
			return burst, u, f
		}
	}
}

// scale returns a * b / c rounded up, where that is below 2^63.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(q)
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// largest is what product returns for all that is larger.
const largest = 1 << 61

// product returns a * b for a, b >= 0, at most largest.
func product(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi > 0 || lo > largest {
		return largest
	}
	return int64(lo)
}

// floorOf returns x / y rounded down, for y > 0.
func floorOf(x, y int64) int64 {
	q := x / y
	if x%y < 0 {
		q--
	}
	return q
}

// ceilOf returns x / y rounded up, for y > 0.
func ceilOf(x, y int64) int64 { return -floorOf(-x, y) }
