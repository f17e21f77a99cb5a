package leases

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// world is a store and its sidecars on virtual time.
type world struct {
	random   *rand.Rand
	base     time.Time
	now      int64   // µs since base
	events   []event // in the order of time
	limit    limit.Limit
	counter  limit.Counter
	sidecars []*sidecar
	meter    meter
	most     int64                // tokens of a request
	way      func() (int64, bool) // µs that a message takes, and whether it arrives
	stall    func() int64         // µs that a look for ended leases comes late

	decisions, calls, refused int64
}

// sidecar is one caller of the store.
type sidecar struct {
	w      *world
	leases *Leases
	dead   bool
}

type event struct {
	at  int64
	run func()
}

func newWorld(seed uint64, l limit.Limit, sidecars int) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), base: time.Now(), limit: l, most: 1}
	w.base = w.base.Add(w.base.Truncate(time.Hour).Add(time.Hour).Sub(w.base)) // windows begin here
	w.meter = meter{limit: l}
	w.way, w.stall = func() (int64, bool) { return 500, true }, func() int64 { return 0 }
	for range sidecars {
		w.join(sidecars)
	}
	return w
}

// join adds a sidecar.
func (w *world) join(sidecars int) *sidecar {
	s := &sidecar{w: w, leases: New(func(string) int { return sidecars })}
	w.sidecars = append(w.sidecars, s)
	w.after(w.random.Int64N(10_000), s.tick)
	return s
}

func (w *world) after(delay int64, run func()) {
	at, _ := slices.BinarySearchFunc(w.events, w.now+delay+1, func(e event, at int64) int {
		return cmp.Compare(e.at, at)
	})
	w.events = slices.Insert(w.events, at, event{w.now + delay, run})
}

func (w *world) clock() time.Time { return w.base.Add(time.Duration(w.now) * time.Microsecond) }
func (w *world) server() int64    { return w.base.UnixMicro() + w.now }

// run runs until an instant.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at < until.Microseconds() {
		next := w.events[0]
		w.events = w.events[1:]
		w.now = next.at
		next.run()
	}
}

// offer lets a sidecar get requests at random, so many a second.
func (s *sidecar) offer(rate float64) {
	s.w.after(int64(s.w.random.ExpFloat64()*1e6/rate)+1, func() {
		if !s.dead {
			s.request(1 + s.w.random.Int64N(s.w.most))
			s.offer(rate)
		}
	})
}

// request makes one request.
func (s *sidecar) request(cost int64) { s.charge(limit.Charge{Cost: cost}) }

// charge makes a request of one charge on the counter.
func (s *sidecar) charge(c limit.Charge) {
	w := s.w
	c.Key, c.Limit, c.Lease = "key", w.limit, limit.MaxCost
	r := single(c)
	w.decisions++
	if s.leases.Spend(r, w.clock()) {
		w.meter.spend(w.now, c.Cost)
		return
	}
	w.calls++
	sent := w.clock()
	before, after := s.leases.Around(r, sent)
	s.send(append(append(before, r), after...), func() {
		for _, a := range after {
			s.leases.Granted(a, sent)
		}
		s.leases.Learn(r, sent)
	})
}

// send has requests decided, and calls over when that is known.
func (s *sidecar) send(requests []*limit.Request, over func()) {
	w := s.w
	there, arrives := w.way()
	back, returns := w.way()
	w.after(there, func() {
		for _, r := range requests {
			if arrives {
				w.decide(r)
			}
		}
	})
	w.after(there+back, func() {
		for _, r := range requests {
			if !arrives || !returns {
				clear(r.Decisions)
			}
		}
		if !s.dead {
			over()
		}
	})
}

// decide decides a request in the store.
func (w *world) decide(r *limit.Request) {
	limit.Decide(w.server(), false, r.Charges, []*limit.Counter{&w.counter}, []*limit.Cooling{nil}, r.Decisions)
	if r.Charges[0].Op != limit.Spend {
		return
	}
	if r.Decisions[0].Outcome == limit.Allowed {
		w.meter.spend(w.now, r.Charges[0].Cost)
	} else {
		w.refused++
	}
}

// tick returns what is over.
func (s *sidecar) tick() {
	if s.dead {
		return
	}
	if ended := s.leases.Ended(s.w.clock()); len(ended) > 0 {
		s.w.calls++
		s.send(ended, func() {})
	}
	s.w.after(10_000+s.w.stall(), s.tick)
}

// meter measures what was really spent, in the order of time.
type meter struct {
	limit   limit.Limit
	full    float64 // µs: when an ideal bucket would be full
	window  int64
	counted int64
	spent   int64
	over    float64 // tokens beyond the limit
}

func (m *meter) spend(now, tokens int64) {
	m.spent += tokens
	length := m.limit.Window.Microseconds()
	if !m.limit.Algorithm.Fills() {
		if n := now / length; n != m.window {
			m.window, m.counted = n, 0
		}
		m.counted += tokens
		m.over = max(m.over, float64(m.counted-m.limit.Count))
		return
	}
	token := float64(length) / float64(m.limit.Count)
	m.full = max(m.full, float64(now)) + float64(tokens)*token
	m.over = max(m.over, (m.full-float64(now))/token-float64(m.limit.Burst))
}

// check fails the test where more was spent than the limit admits. The meter rounds.
func (w *world) check(t *testing.T) {
	t.Helper()
	if w.meter.over > 0.001 {
		t.Errorf("%g tokens beyond the limit were spent", w.meter.over)
	}
}

func bucket(count, burst int64) limit.Limit {
	return limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: time.Second, Burst: burst}
}

func window(a limit.Algorithm, count int64) limit.Limit {
	return limit.Limit{Algorithm: a, Count: count, Window: time.Second}
}

// TestManySidecarsSaveCalls: a limit that many sidecars share evenly costs far less calls than decisions, and nothing
// beyond it is spent.
func TestManySidecarsSaveCalls(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    limit.Limit
		sidecars int
		calls    float64 // per decision
	}{
		{"200 sidecars, a bucket of 100,000 a second", bucket(100_000, 100_000), 200, 0.15},
		{"200 sidecars, a window of 100,000", window(limit.FixedWindow, 100_000), 200, 0.15},
		{"200 sidecars, a sliding window of 100,000", window(limit.SlidingWindow, 100_000), 200, 0.15},
		{"20 sidecars, a bucket of 1,000 a second", bucket(1000, 1000), 20, 0.6},
		{"20 sidecars, a window of 1,000", window(limit.FixedWindow, 1000), 20, 0.6},
		{"20 sidecars, a sliding window of 1,000", window(limit.SlidingWindow, 1000), 20, 0.8}, // less is left to lend
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(1, c.limit, c.sidecars)
			for _, s := range w.sidecars {
				s.offer(0.9 * float64(c.limit.Count) / float64(c.sidecars))
			}
			w.run(1100 * time.Millisecond)
			got := float64(w.calls) / float64(w.decisions)
			t.Logf("%d decisions, %.3f calls per decision, %d refused", w.decisions, got, w.refused)
			if got > c.calls {
				t.Errorf("%.3f calls per decision, want at most %.2f", got, c.calls)
			}
			w.check(t)
		})
	}
}

// TestLeasesNeverAdmitMoreThanTheLimit is a random walk: messages are slow or lost, sidecars die, all want too much.
func TestLeasesNeverAdmitMoreThanTheLimit(t *testing.T) {
	for seed := range uint64(48) {
		limits := []limit.Limit{
			bucket(1000, 1000), bucket(1000, 100), bucket(700, 30), bucket(20_000, 2000),
			window(limit.FixedWindow, 500), window(limit.SlidingWindow, 500),
		}
		w := newWorld(seed, limits[seed%6], 1+int(seed%5))
		w.most = 1 + int64(seed/6%4)*3
		w.way = func() (int64, bool) {
			delay := w.random.Int64N(1000)
			if w.random.IntN(20) == 0 {
				delay = w.random.Int64N(250_000)
			}
			return delay, w.random.IntN(50) > 0
		}
		w.stall = func() int64 { return w.random.Int64N(5) / 4 * 300_000 }
		var replace func()
		replace = func() {
			i := w.random.IntN(len(w.sidecars))
			w.sidecars[i].dead = true
			s := w.join(len(w.sidecars))
			w.sidecars[i] = s
			w.sidecars = w.sidecars[:len(w.sidecars)-1]
			s.offer(1.5 * float64(w.limit.Count) / float64(len(w.sidecars)))
			w.after(300_000, replace)
		}
		w.after(500_000, replace)
		for _, s := range w.sidecars {
			s.offer((0.3 + w.random.Float64()) * float64(w.limit.Count) / float64(len(w.sidecars)))
		}
		w.run(2 * time.Second)
		w.check(t)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, w.limit)
		}
	}
}

// TestWhatIsHeldComesBack: one sidecar has it all 100 ms after another one stopped to ask.
func TestWhatIsHeldComesBack(t *testing.T) {
	for _, l := range []limit.Limit{bucket(100, 100), window(limit.FixedWindow, 100),
		window(limit.SlidingWindow, 100)} {
		w := newWorld(1, l, 2)
		for range 10 {
			w.sidecars[0].request(1)
			w.run(time.Duration(w.now+2000) * time.Microsecond)
		}
		if w.sidecars[0].leases.Stats().Tokens == 0 {
			t.Fatal("nothing is held")
		}
		w.run(120 * time.Millisecond)
		w.sidecars[1].request(90)
		w.run(130 * time.Millisecond)
		if w.refused > 0 {
			t.Errorf("%v: 90 of 100 were refused", l.Algorithm)
		}
		w.check(t)
	}
}

// TestARefundGivesBackOnlyWhatWasSpent: what is held goes back in front of it, and does not count as spent.
func TestARefundGivesBackOnlyWhatWasSpent(t *testing.T) {
	w := newWorld(1, window(limit.FixedWindow, 1000), 1)
	step := func(c limit.Charge) {
		w.sidecars[0].charge(c)
		w.run(time.Duration(w.now+2000) * time.Microsecond)
	}
	for range 10 {
		step(limit.Charge{Cost: 1})
	}
	step(limit.Charge{Op: limit.Refund, Cost: 500})
	w.run(200 * time.Millisecond)
	step(limit.Charge{Cost: 1001})
	step(limit.Charge{Cost: 1000})
	if w.refused != 1 {
		t.Errorf("%d were refused, want 1001 refused and 1000 admitted", w.refused)
	}
}
