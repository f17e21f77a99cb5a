package limit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// meter is an ideal counter that is charged when a token is really spent: nothing in it is lent.
type meter struct {
	limit  Limit
	full   int64 // bucket: when it is full, in units of 1/count of a µs
	spent  map[int64]int64
	t      *testing.T
	events int
}

func (m *meter) spend(n, at int64) {
	m.events++
	window, count := m.limit.Window.Microseconds(), m.limit.Count
	if m.limit.Algorithm == TokenBucket {
		m.full = max(m.full, at*count) + n*window
		if m.full-at*count > m.limit.Burst*window {
			m.t.Fatalf("at %d the ideal bucket owes %d units, more than its burst", at, m.full-at*count)
		}
		return
	}
	start := at - at%window
	m.spent[start] += n
	used, prev := m.spent[start], m.spent[start-window]
	if m.limit.Algorithm == FixedWindow {
		prev = 0
	}
	if used*window+prev*(start+window-at) > count*window {
		m.t.Fatalf("at %d: %d are spent in this window and %d in the one before, of %d", at, used, prev, count)
	}
}

// granted is a lease of a sidecar.
type granted struct{ rest, spent, until, window int64 }

// TestLeasesStayWithinTheLimit: for any use of leases by sidecars, their spending is within the limit in every
// interval.
func TestLeasesStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Limit{
		"bucket": bucket(100, sec, 40), "small burst": bucket(1000, sec, 20), "sevens": bucket(77, sec, 30),
		"fixed": fixed(200, sec), "sliding": sliding(200, sec),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(3, uint64(len(name))))
			m := &meter{limit: l, spent: map[int64]int64{}, t: t}
			b := &borrower{random: random, meter: m, memory: newMemory(), now: future + 12_345, limit: l}
			for range 30_000 {
				b.step()
			}
			if m.events < 3000 || b.lent < 300 || b.lost < 20 {
				t.Errorf("%d spent, %d lent, %d lost: too little to test", m.events, b.lent, b.lost)
			}
		})
	}
}

// borrower is sidecars that lend from one counter.
type borrower struct {
	random     *rand.Rand
	meter      *meter
	memory     *memory
	now        int64
	limit      Limit
	held       []granted
	lent, lost int
}

func (b *borrower) charge(op Op, cost, until int64) Decision {
	c := Charge{Key: "k", Limit: b.limit, Op: op, Cost: cost, Parts: 1 + b.random.Int64N(4), Until: until}
	return b.memory.decide(b.now, order{charges: []Charge{c}})[0]
}

func (b *borrower) step() {
	switch b.random.IntN(4) {
	case 0:
		b.now += b.random.Int64N(1000)
	case 1:
		b.now += b.random.Int64N(40_000)
	}
	if b.random.IntN(20) == 0 && len(b.held) > 0 { // to the last µs of a lease, or just after it
		b.now = max(b.now, b.held[b.random.IntN(len(b.held))].until-1+b.random.Int64N(2))
	}
	b.held = slices.DeleteFunc(b.held, func(h granted) bool {
		if h.until <= b.now && h.rest > 0 {
			b.lost++
		}
		return h.until <= b.now
	})
	switch b.random.IntN(6) {
	case 0, 1:
		b.lend()
	case 2:
		if d := b.charge(Spend, 1+b.random.Int64N(5), 0); d.Charged > 0 {
			b.meter.spend(d.Charged, b.now)
		}
	default:
		b.use()
	}
}

func (b *borrower) lend() {
	d := b.charge(Lend, 1+b.random.Int64N(30), 0)
	if d.Outcome == Allowed {
		b.lent++
		end := b.now + d.Wait.Microseconds()
		b.held = append(b.held, granted{rest: d.Charged, until: min(end, b.now+2*epoch), window: end})
	}
}

// use spends of a lease, or ends it.
func (b *borrower) use() {
	if len(b.held) == 0 {
		return
	}
	i := b.random.IntN(len(b.held))
	h := &b.held[i]
	if n := min(h.rest, 1+b.random.Int64N(8)); n > 0 && b.random.IntN(4) > 0 {
		h.rest, h.spent = h.rest-n, h.spent+n
		b.meter.spend(n, b.now)
		return
	}
	if b.random.IntN(3) > 0 {
		return
	}
	if b.limit.Algorithm != TokenBucket {
		b.charge(Refund, h.rest, h.window)
	} else {
		b.charge(Spent, h.spent, h.until)
		b.charge(Returned, h.rest, h.until)
	}
	b.held = slices.Delete(b.held, i, i+1)
}

// TestWaitsAreExact: a refused cost passes at its RetryAfter and not 1 µs earlier, a counter is full at its ResetAfter
// and not earlier, also while tokens are on lease, and beyond what the oracle can count.
func TestWaitsAreExact(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Limit{
		"bucket": bucket(100, sec, 40), "sevens": bucket(77, sec, 30), "slow": bucket(3, mnt, 5),
		"large": bucket(1e9+7, sec, 3e9),
		"fixed": fixed(20, sec), "sliding": sliding(20, sec), "wide": sliding(MaxCount, 24*time.Hour),
		"log": logged(20, sec),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkWaits(t, l, rand.New(rand.NewPCG(5, uint64(len(name)))))
		})
	}
}

func checkWaits(t *testing.T, l Limit, random *rand.Rand) {
	m, now, seen := newMemory(), int64(future), 0
	for range 20_000 {
		now += random.Int64N(max(l.Window.Microseconds()/10, 2))
		c := Charge{Key: "k", Limit: l, Cost: 1 + random.Int64N(max(l.Capacity()/4, 1)), Parts: 2}
		if random.IntN(4) == 0 {
			c.Op = []Op{Lend, Refund}[random.IntN(2)]
		}
		d := m.decide(now, order{charges: []Charge{c}})[0]
		peek := Charge{Key: "k", Limit: l, Op: Peek, Cost: 1 + random.Int64N(l.Capacity())}
		if p := m.decide(now, order{charges: []Charge{peek}})[0]; p.Outcome == Refused {
			seen++
			passes := func(at int64) bool { return m.decide(at, order{charges: []Charge{peek}})[0].Outcome == Allowed }
			checkInstant(t, "retry after", now, p.RetryAfter, passes)
		}
		if d.ResetAfter > 0 && l.Algorithm != FixedWindow {
			full := func(at int64) bool { return m.fullAt(at, l) }
			checkInstant(t, "reset after", now, d.ResetAfter, full)
		}
	}
	if seen < 500 {
		t.Errorf("only %d peeks were refused", seen)
	}
}

// fullAt reports whether nothing of the counter is used at an instant.
func (m *memory) fullAt(at int64, l Limit) bool {
	c := Charge{Key: "k", Limit: l, Op: Peek}
	return m.decide(at, order{charges: []Charge{c}})[0].ResetAfter == 0
}

// checkInstant checks that something holds after a wait, and not 1 µs before. The counters keep what they held.
func checkInstant(t *testing.T, what string, now int64, wait time.Duration, holds func(at int64) bool) {
	t.Helper()
	at := now + wait.Microseconds()
	if wait <= 0 || holds(at-1) || !holds(at) {
		t.Fatalf("%s %v at %d: before it %v, at it %v", what, wait, now, holds(at-1), holds(at))
	}
}
