package memory

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// hand is a clock that a test turns.
type hand struct{ now time.Time }

func newHand() *hand { return &hand{time.Now().Truncate(time.Hour)} }

func (h *hand) Now() time.Time        { return h.now }
func (h *hand) turn(by time.Duration) { h.now = h.now.Add(by) }

func bucket(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: window, Burst: count}
}

// try decides charges.
func try(m *Memory, charges ...limit.Charge) []limit.Decision {
	r := &limit.Request{Charges: charges, Decisions: make([]limit.Decision, len(charges))}
	m.Try(r)
	return r.Decisions
}

// want compares a decision in part.
func want(t *testing.T, what string, d limit.Decision, outcome limit.Outcome, charged, remaining int64) {
	t.Helper()
	if d.Outcome != outcome || d.Charged != charged || d.Remaining != remaining {
		t.Errorf("%s: %+v, want outcome %d, charged %d, remaining %d", what, d, outcome, charged, remaining)
	}
}

func TestTimeIsThatOfTheClock(t *testing.T) {
	clock := newHand()
	m := New(Config{Now: clock.Now})
	c := limit.Charge{Key: "key", Limit: bucket(10, time.Minute), Cost: 8}
	want(t, "first", try(m, c)[0], limit.Allowed, 8, 2)
	clock.turn(30 * time.Second)
	d := try(m, c)[0]
	want(t, "five tokens later", d, limit.Refused, 0, 7)
	if d.At != clock.now.UnixMicro() || d.RetryAfter != 6*time.Second {
		t.Errorf("%+v, want the time of the clock", d)
	}
}

// TestItIsExactUnderContention: requests over two counters in any order admit what fits.
func TestItIsExactUnderContention(t *testing.T) {
	m := New(Config{})
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			a := limit.Charge{Key: "a", Limit: bucket(1000, 1000*time.Hour), Cost: 1}
			b := limit.Charge{Key: "b", Limit: bucket(900, 1000*time.Hour), Cost: 1}
			for range 500 {
				if i%2 == 0 {
					a, b = b, a
				}
				if d := try(m, a, b); d[0].Outcome == limit.Allowed && d[1].Outcome == limit.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n != 900 {
		t.Errorf("%d admitted, want 900", n)
	}
}

// TestWhatIsFullIsForgotten: by requests about other counters.
func TestWhatIsFullIsForgotten(t *testing.T) {
	clock := newHand()
	m := New(Config{Now: clock.Now, Keys: 1000})
	for i := range 300 {
		try(m, limit.Charge{Key: fmt.Sprint("old ", i), Limit: bucket(1, time.Second), Cost: 1})
	}
	clock.turn(2 * time.Second)
	c := limit.Charge{Key: "old 1", Limit: bucket(1, time.Second), Cost: 1}
	want(t, "a full one", try(m, c)[0], limit.Allowed, 1, 0)
	for i := range 600 {
		try(m, limit.Charge{Key: fmt.Sprint("new ", i), Limit: bucket(1, time.Hour), Cost: 1})
	}
	if s := m.Stats(); s.Keys > 601 || s.Evicted > 0 {
		t.Errorf("%+v, want the new ones", s)
	}
}

// TestMemoryEvictsFromTheClassThatTakesMost, and there not what is spent of its own.
func TestMemoryEvictsFromTheClassThatTakesMost(t *testing.T) {
	m := New(Config{Keys: 2000, Now: newHand().Now})
	login := func(i int) limit.Charge {
		return limit.Charge{Key: fmt.Sprint("login ", i), Limit: bucket(5, time.Minute), Cost: 5, Class: 1}
	}
	for i := range 200 {
		try(m, login(i))
	}
	daily := limit.Limit{Algorithm: limit.FixedWindow, Count: 2, Window: 24 * time.Hour}
	for i := range 200 {
		try(m, limit.Charge{Key: fmt.Sprint("spent ", i), Limit: daily, Cost: 2, Class: 2})
	}
	for i := range 20_000 {
		try(m, limit.Charge{Key: fmt.Sprint("day ", i), Limit: daily, Cost: 1, Class: 2})
	}
	for i := range 200 {
		want(t, "a login beside the flood", try(m, login(i))[0], limit.Refused, 0, 0)
		spent := limit.Charge{Key: fmt.Sprint("spent ", i), Limit: daily, Cost: 1, Class: 2}
		want(t, "a spent counter", try(m, spent)[0], limit.Refused, 0, 0)
	}
	if s := m.Stats(); s.Evicted < 10_000 || s.Keys > 2000 {
		t.Errorf("%+v: the flood was not evicted", s)
	}
}

// TestMemoryTakesNoMoreThanItCounts compares the estimate with the heap.
func TestMemoryTakesNoMoreThanItCounts(t *testing.T) {
	log := limit.Limit{Algorithm: limit.SlidingLog, Count: 100, Window: time.Hour}
	penalty := &limit.Penalty{Threshold: 5, Window: time.Hour, CoolDown: time.Hour}
	for name, charge := range map[string]func(i int) limit.Charge{
		"short keys": func(i int) limit.Charge {
			return limit.Charge{Key: fmt.Sprint(i), Limit: bucket(5, time.Hour), Cost: 1}
		},
		"long keys": func(i int) limit.Charge {
			return limit.Charge{Key: strings.Repeat("x", 1000) + fmt.Sprint(i), Limit: bucket(5, time.Hour), Cost: 1}
		},
		"logs": func(i int) limit.Charge { return limit.Charge{Key: fmt.Sprint(i / 10), Limit: log, Cost: 1} },
		"cool-downs": func(i int) limit.Charge {
			c := limit.Charge{Key: fmt.Sprint(i), Limit: bucket(1, time.Hour), Cost: 2}
			c.Penalty, c.PenaltyKey = penalty, fmt.Sprint("p", i)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			m := New(Config{})
			for i := range 50_000 {
				try(m, charge(i))
			}
			took, counted := heap()-before, m.Stats().Bytes
			t.Logf("%d bytes on the heap, %d counted, for %d keys", took, counted, m.Stats().Keys)
			const fixed = 1 << 20 // of an empty store
			if took > counted+fixed || counted > 3*took {
				t.Errorf("it takes %d bytes and counts %d", took, counted)
			}
			runtime.KeepAlive(m)
		})
	}
}

// heap is how many bytes are in use. What pools keep is gone after the second collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func TestADecisionAllocatesNothing(t *testing.T) {
	m := New(Config{})
	r := &limit.Request{Decisions: make([]limit.Decision, 4)}
	for i := range 4 {
		r.Charges = append(r.Charges, limit.Charge{Key: fmt.Sprint(i), Limit: bucket(1<<40, time.Hour), Cost: 1})
	}
	if n := testing.AllocsPerRun(1000, func() { m.Try(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
