package limit_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// decodeState reads what state.lua stores.
func decodeState(l limit.Limit, value []byte) limit.State {
	if len(value) == 0 {
		return limit.State{}
	}
	double := func(at int) int64 { return int64(math.Float64frombits(binary.BigEndian.Uint64(value[at:]))) }
	s, third := limit.State{At: double(0)}, int64(0)
	if len(value) == 24 {
		s.Used, third = double(8), double(16)
	} else {
		s.Used = int64(binary.BigEndian.Uint32(value[8:]))
		if len(value) == 16 {
			third = int64(binary.BigEndian.Uint32(value[12:]))
		}
	}
	if l.Algorithm == limit.TokenBucket {
		s.Rem = third
	} else {
		s.Prev = third
	}
	return s
}

// The model: sidecars that hoard leases, spend them in bursts, crash, return late and again, while others take strictly, against an ideal
// that sees only what was really spent, and when. The ideal shares nothing with the escrow.

const (
	modelSteps    = 200_000
	modelSidecars = 5
)

// lender lends and takes: the real counter, or a naive one.
type lender interface {
	lend(a limit.Ask, now int64) limit.Grant
	take(l limit.Limit, n, now int64) bool
}

// escrow is the real counter.
type escrow struct{ state limit.State }

func (e *escrow) lend(a limit.Ask, now int64) limit.Grant { return limit.Lend(&e.state, &a, now) }

func (e *escrow) take(l limit.Limit, n, now int64) bool {
	var d [1]limit.Decision
	limit.Decide([]*limit.State{&e.state}, []limit.Charge{{Limit: l, Cost: n}}, false, now, d[:])
	return d[0].Outcome == limit.Allowed
}

// naive charges a lease when it is lent, so the time until it is spent earns it back.
type naive struct{ escrow }

func (e *naive) lend(a limit.Ask, now int64) limit.Grant {
	for _, r := range a.Reports {
		if r.Returned > 0 {
			var d [1]limit.Decision
			limit.Decide([]*limit.State{&e.state}, []limit.Charge{{Limit: a.Limit, Cost: r.Returned, Op: limit.Refund}}, false, now, d[:])
		}
	}
	g := limit.Grant{At: now, Epoch: now / 100_000, Until: (now/100_000 + 2) * 100_000}
	for n := a.Want; n > 0 && g.Tokens == 0; n /= 2 {
		if e.take(a.Limit, n, now) {
			g.Tokens = n
		}
	}
	return g
}

// lot is what a sidecar of the model holds of one grant.
type lot struct {
	epoch, until int64
	held, spent  int64
}

// model runs sidecars on one counter. admitted is called for each spend.
type model struct {
	random   *rand.Rand
	counter  lender
	limit    limit.Limit
	now      int64
	lots     [modelSidecars][]lot
	admitted func(n, now int64)
	local    int
}

func (m *model) run(steps int) {
	for range steps {
		switch m.random.IntN(6) {
		case 0:
			m.now += m.random.Int64N(400_000)
		case 1, 2:
			m.now += m.random.Int64N(30_000)
		default:
			m.now += m.random.Int64N(1_000)
		}
		s := m.random.IntN(modelSidecars)
		switch m.random.IntN(8) {
		case 0, 1, 2:
			m.ask(s)
		case 3, 4, 5:
			m.spend(s)
		case 6:
			n := 1 + m.random.Int64N(max(m.limit.Capacity()/4, 1))
			if m.counter.take(m.limit, n, m.now) {
				m.admitted(n, m.now)
			}
		default:
			if m.random.IntN(4) == 0 {
				m.lots[s] = nil // a crash: what it held is never reported
			}
		}
	}
}

// ask reports of two lots, sometimes with a return of what is left, sometimes long after they died, and hoards.
func (m *model) ask(s int) {
	a := limit.Ask{Limit: m.limit, Want: 1 + m.random.Int64N(m.limit.Capacity()), Parts: 1 + m.random.Int64N(3)}
	for i := range a.Reports {
		if len(m.lots[s]) == 0 {
			break
		}
		at := m.random.IntN(len(m.lots[s]))
		l := &m.lots[s][at]
		a.Reports[i] = limit.Report{Epoch: l.epoch, Spent: l.spent}
		l.spent = 0
		if m.random.IntN(3) == 0 {
			a.Reports[i].Returned, l.held = l.held, 0
		}
		if l.held == 0 {
			m.lots[s] = append(m.lots[s][:at], m.lots[s][at+1:]...)
		}
	}
	g := m.counter.lend(a, m.now)
	if g.Tokens > 0 {
		m.lots[s] = append(m.lots[s], lot{epoch: g.Epoch, until: g.Until, held: g.Tokens})
	}
}

// spend spends from all live lots of a sidecar: a part, or all at once.
func (m *model) spend(s int) {
	all := m.random.IntN(2) == 0
	for i := range m.lots[s] {
		l := &m.lots[s][i]
		if l.held == 0 || m.now >= l.until {
			continue
		}
		n := l.held
		if !all {
			n = 1 + m.random.Int64N(l.held)
		}
		l.held, l.spent = l.held-n, l.spent+n
		m.local++
		m.admitted(n, m.now)
	}
}

// idealBucket is how far below its least level an ideal bucket is driven by what was spent: the tokens that were admitted too many.
func idealBucket(l limit.Limit, start int64) (admitted func(n, now int64), over func() float64) {
	level, at, worst := float64(l.Burst), start, 0.0
	rate := float64(l.Count) / float64(l.Window.Microseconds())
	return func(n, now int64) {
		level = min(float64(l.Burst), level+float64(now-at)*rate) - float64(n)
		at, worst = now, min(worst, level)
	}, func() float64 { return -worst }
}

// idealWindow is how many tokens more than its count a window admitted at most. A sliding one counts a part of the window before.
func idealWindow(l limit.Limit, sliding bool) (admitted func(n, now int64), over func() float64) {
	window := l.Window.Microseconds()
	var start int64
	var used, prev, worst float64
	return func(n, now int64) {
		if at := now - now%window; at != start {
			prev = used
			if at != start+window {
				prev = 0
			}
			start, used = at, 0
		}
		used += float64(n)
		weight := 0.0
		if sliding {
			weight = prev * float64(start+window-now) / float64(window)
		}
		worst = max(worst, used+weight-float64(l.Count))
	}, func() float64 { return worst }
}

// TestLeasesNeverAdmitMoreThanTheLimit over adversarial histories of all algorithms that lend.
func TestLeasesNeverAdmitMoreThanTheLimit(t *testing.T) {
	for name, l := range map[string]limit.Limit{
		"bucket":        {Algorithm: limit.TokenBucket, Count: 200, Window: time.Second, Burst: 200},
		"small bucket":  {Algorithm: limit.TokenBucket, Count: 1000, Window: time.Second, Burst: 50},
		"slow bucket":   {Algorithm: limit.TokenBucket, Count: 600, Window: time.Minute, Burst: 5_000},
		"odd bucket":    {Algorithm: limit.TokenBucket, Count: 9_973, Window: 7 * time.Second, Burst: 3_001},
		"fixed window":  {Algorithm: limit.FixedWindow, Count: 500, Window: time.Second},
		"sliding":       {Algorithm: limit.SlidingWindow, Count: 500, Window: time.Second},
		"long sliding":  {Algorithm: limit.SlidingWindow, Count: 4_000, Window: 10 * time.Second},
		"minute window": {Algorithm: limit.FixedWindow, Count: 60_000, Window: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			over, local := runModel(l, &escrow{}, seed)
			if over > 1e-6 {
				t.Errorf("with seed %d: %.6f tokens more than the limit", seed, over)
			}
			if local < modelSteps/200 {
				t.Errorf("with seed %d: only %d spends of leases", seed, local)
			}
		})
	}
}

// TestNaiveLeasesAdmitMoreThanTheLimit: the same model rejects leases that are charged when they are lent.
func TestNaiveLeasesAdmitMoreThanTheLimit(t *testing.T) {
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: 200, Window: time.Second, Burst: 200}
	if over, _ := runModel(l, &naive{}, 1); over < 10 {
		t.Errorf("the model finds %.3f tokens too many in naive leases, want at least 10", over)
	}
}

func runModel(l limit.Limit, counter lender, seed uint64) (over float64, local int) {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), counter: counter, limit: l, now: start}
	var worst func() float64
	if l.Algorithm == limit.TokenBucket {
		m.admitted, worst = idealBucket(l, m.now)
	} else {
		m.admitted, worst = idealWindow(l, l.Algorithm == limit.SlidingWindow)
	}
	m.run(modelSteps)
	return worst(), m.local
}

// All of Used is earned back, and tokens are lent.
func TestWaitsWhileTokensAreLentAreNotNegative(t *testing.T) {
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: 100, Window: time.Second, Burst: 40}
	const start, later = int64(1_800_000_000_000_000), int64(1_800_000_000_060_000)
	var s limit.State
	var d [1]limit.Decision
	take := func(c limit.Charge, now int64) limit.Decision {
		c.Key, c.Limit = "k", l
		limit.Decide([]*limit.State{&s}, []limit.Charge{c}, false, now, d[:])
		return d[0]
	}
	take(limit.Charge{Cost: 5}, start)
	limit.Lend(&s, &limit.Ask{Key: "k", Limit: l, Want: 30, Parts: 1}, start)
	if got := take(limit.Charge{Cost: 20}, later); got.Outcome != limit.Refused || got.RetryAfter <= 0 || got.RetryAfter > time.Second {
		t.Errorf("20 of 10 that are left: %+v, want a refusal until some that are lent are back", got)
	}
	if got := take(limit.Charge{Cost: 20, MaxWait: 10 * time.Millisecond}, later); got.Outcome != limit.Refused || got.Wait < 0 {
		t.Errorf("a throttle that may wait for 10 ms: %+v, want a refusal", got)
	}
}
