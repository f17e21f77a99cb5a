package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// hand is a clock that a test turns by hand.
type hand struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func newHand() *hand { return &hand{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (h *hand) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hand) Turn(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func bucket(count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: limit.TokenBucket, Count: count, Window: window, Burst: count}
}

func TestMemoryGivesBackWithTime(t *testing.T) {
	eachAlgorithm(t, 4, time.Second, func(t *testing.T, l limit.Limit) {
		clock := newHand()
		m := NewMemory(MemoryConfig{Now: clock.Now})
		spend(m, charge(t, "k", l, 4))
		want(t, "spent", spend(m, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
		clock.Turn(2 * time.Second)
		want(t, "two windows later", spend(m, charge(t, "k", l, 4))[0], limit.Allowed, 4, 0)
	})
}

func TestMemoryKeepsOnlyWhatWasCharged(t *testing.T) {
	m := NewMemory(MemoryConfig{})
	l := bucket(1, time.Hour)
	peek := charge(t, "peek", l, 1)
	peek.Op = limit.Peek
	refund := charge(t, "refund", l, 1)
	refund.Op = limit.Refund
	spend(m, peek)
	spend(m, refund)
	spend(m, charge(t, "too much", l, 2))
	usage(m, charge(t, "usage", l, 1))
	spend(m, charge(t, "spent", l, 1))
	spend(m, charge(t, "spent", l, 1), charge(t, "sibling", l, 1))
	if keys := m.Stats().Keys; keys != 1 {
		t.Fatalf("%d keys, want 1: only one counter was charged", keys)
	}
}

// TestMemoryKeepsWhatOneOfTwoLimitsNeeds looks at a counter by two limits in one request: for the first one it is full again, for the other
// one it is not.
func TestMemoryKeepsWhatOneOfTwoLimitsNeeds(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{Now: clock.Now})
	slow := charge(t, "k", bucket(10, time.Hour), 5)
	spend(m, slow)
	clock.Turn(time.Second)
	fast := charge(t, "k", bucket(1000, time.Second), 1)
	m.Usage(context.Background(), []limit.Charge{fast, slow}, make([]limit.Decision, 2))
	want(t, "what is left", usage(m, slow), limit.Allowed, 0, 5)
	if keys := m.Stats().Keys; keys != 1 {
		t.Errorf("%d keys, want 1", keys)
	}
	wantInOrder(t, m)
}

func TestMemoryForgetsARefundedCounter(t *testing.T) {
	m := NewMemory(MemoryConfig{})
	c := charge(t, "k", bucket(5, time.Hour), 3)
	spend(m, c)
	c.Op = limit.Refund
	spend(m, c)
	if keys := m.Stats().Keys; keys != 0 {
		t.Fatalf("%d keys after a full refund, want 0", keys)
	}
}

func TestMemoryShrinksAsItIsUsed(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{Now: clock.Now})
	for i := range 10_000 {
		spend(m, charge(t, fmt.Sprint(i), bucket(1, time.Second), 1))
	}
	clock.Turn(time.Minute)
	other := charge(t, "other", bucket(1_000_000, time.Hour), 1)
	for range 5000 {
		spend(m, other)
	}
	if s := m.Stats(); s.Keys != 1 || s.Expired != 10_000 || s.Evicted != 0 {
		t.Fatalf("%+v, want 1 key, 10,000 expired and none evicted", s)
	}
}

func TestMemoryEvictsTheCounterNearestToFull(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{MaxKeys: 100, Now: clock.Now})
	guilty := charge(t, "guilty", bucket(3, 24*time.Hour), 3)
	spend(m, guilty)
	for i := range 99 {
		spend(m, charge(t, fmt.Sprint("hour ", i), bucket(2, time.Hour), 1))
	}
	first := charge(t, "hour 0", bucket(2, time.Hour), 1)
	spend(m, first) // now it is the last of the hour counters to be full
	for i := range 98 {
		spend(m, charge(t, fmt.Sprint("more ", i), bucket(2, time.Hour), 2))
	}
	if s := m.Stats(); s.Keys != 100 || s.Evicted != 98 {
		t.Fatalf("%+v, want 100 keys and 98 evicted", s)
	}
	wantLeft(t, m, guilty, 0)
	wantLeft(t, m, first, 0)
	wantLeft(t, m, charge(t, "hour 1", bucket(2, time.Hour), 1), 2)
}

func TestMemoryIsBoundedUnderAMillionIdentities(t *testing.T) {
	const bound = 50_000
	m := NewMemory(MemoryConfig{MaxKeys: bound, Now: newHand().Now}) // no counter ends meanwhile
	guilty := charge(t, "guilty", bucket(10, 24*time.Hour), 10)
	spend(m, guilty)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	flood(m, identities)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if s := m.Stats(); s.Keys != bound || s.Evicted != identities+1-bound {
		t.Errorf("%+v, want %d keys and %d evicted", s, bound, identities+1-bound)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > bound*512 {
		t.Errorf("the store takes %d bytes, want at most 512 per key of %d", grown, bound)
	}
	want(t, "the spent counter", spend(m, guilty)[0], limit.Refused, 0, 0)
}

// flood spends once on each of many identities, from two goroutines.
func flood(m *Memory, identities int) {
	var all sync.WaitGroup
	for half := range 2 {
		all.Go(func() {
			decisions := make([]limit.Decision, 1)
			charges := []limit.Charge{{Limit: bucket(10, time.Minute), Cost: 1}}
			for i := range identities / 2 {
				charges[0].Key = fmt.Sprintf("rl1:{api|user=%d-%d}:user:per-user:0:token_bucket", half, i)
				m.Spend(context.Background(), charges, decisions)
			}
		})
	}
	all.Wait()
}

// TestMemoryQueueStaysInOrder charges, refunds and resets the counters of one shard at random.
func TestMemoryQueueStaysInOrder(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{Now: clock.Now})
	var keys []string
	for i := 0; len(keys) < 40; i++ {
		if key := fmt.Sprint("key ", i); m.name(key).home() == 7 {
			keys = append(keys, key)
		}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 5000 {
		c := limit.Charge{Key: keys[rng.IntN(len(keys))], Limit: bucket(100, time.Hour), Cost: rng.Int64N(40)}
		switch rng.IntN(8) {
		case 0:
			m.Reset(context.Background(), []string{c.Key})
		case 1, 2:
			c.Op = limit.Refund
			spend(m, c)
		default:
			spend(m, c)
		}
		clock.Turn(time.Duration(rng.IntN(20)) * time.Second)
		wantInOrder(t, m)
	}
	if s := m.Stats(); s.Expired == 0 || s.Keys == 0 {
		t.Fatalf("%+v: the walk met no expiry, or ended empty", s)
	}
}

func TestMemoryEvictsUnderContention(t *testing.T) {
	m := NewMemory(MemoryConfig{MaxKeys: 1000})
	l := bucket(10, time.Hour)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 5000 {
				spend(m, charge(t, fmt.Sprint(worker, i), l, 1), charge(t, fmt.Sprint(i%3000), l, 1), charge(t, "hot", l, 1))
				if i%50 == 0 {
					m.Reset(context.Background(), []string{charge(t, fmt.Sprint(i), l, 1).Key})
				}
			}
		})
	}
	all.Wait()
	if keys := m.Stats().Keys; keys > 1000 {
		t.Fatalf("%d keys, want at most 1000", keys)
	}
	wantInOrder(t, m)
}

// wantInOrder checks that map, queue and counts of every shard say the same.
func wantInOrder(t *testing.T, m *Memory) {
	t.Helper()
	var keys int64
	queued := 0
	for i := range m.shards {
		s := &m.shards[i]
		keys += int64(s.entries.count)
		for _, p := range m.pots.list() {
			wantQueueInOrder(t, p, i)
			queued += len(p.queues[i])
		}
	}
	if int64(queued) != keys {
		t.Fatalf("%d in the queues, %d in the maps", queued, keys)
	}
	if keys != m.Stats().Keys {
		t.Fatalf("%d keys in the shards, %d counted", keys, m.Stats().Keys)
	}
}

func wantQueueInOrder(t *testing.T, p *pot, home int) {
	t.Helper()
	q := p.queues[home]
	for place, slot := range q {
		if slot.entry.place != place || slot.expires != slot.entry.expires || slot.expires < q[max(place-1, 0)/2].expires {
			t.Fatalf("shard %d: slot %d is out of order", home, place)
		}
	}
	if len(q) > 0 && p.earliest[home].Load() != q[0].expires {
		t.Fatalf("shard %d: its first expiry is not known outside", home)
	}
}

func TestMemorySpendAllocatesNothingOnAKnownKey(t *testing.T) {
	m := NewMemory(MemoryConfig{})
	charges := []limit.Charge{charge(t, "k", bucket(1_000_000, time.Hour), 1)}
	decisions := make([]limit.Decision, 1)
	m.Spend(context.Background(), charges, decisions)
	got := testing.AllocsPerRun(1000, func() { m.Spend(context.Background(), charges, decisions) })
	if got > poolAllocs {
		t.Fatalf("%v allocations, want %d", got, poolAllocs)
	}
}

// TestACounterThatIsUsedUpOutlivesAFlood of others that have most of their limit left: a refused client must not get a new one by making up names.
func TestACounterThatIsUsedUpOutlivesAFlood(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		now := time.Date(2026, 1, 1, 10, 0, 5, 0, time.UTC)
		m := NewMemory(MemoryConfig{MaxKeys: 1000, Now: func() time.Time { return now }})
		l := limit.Limit{Algorithm: a, Count: 10, Window: time.Hour}
		if a == limit.TokenBucket {
			l.Burst = 10
		}
		spend := func(key string, cost int64) limit.Outcome {
			d := make([]limit.Decision, 1)
			m.Spend(t.Context(), []limit.Charge{{Key: key, Limit: l, Cost: cost}}, d)
			return d[0].Outcome
		}
		for i := range 100 {
			spend(fmt.Sprint("spent", i), 10)
		}
		for i := range 1800 {
			now = now.Add(time.Millisecond)
			spend(fmt.Sprint("flood", i), 1)
		}
		again := 0
		for i := range 100 {
			if spend(fmt.Sprint("spent", i), 1) == limit.Allowed {
				again++
			}
		}
		if again > 0 {
			t.Errorf("%v: %d of 100 refused clients are admitted again", a, again)
		}
	}
}

// TestAFloodOfCountersThatAreUsedUpStaysWithinTheBound: there is always one to forget.
func TestAFloodOfCountersThatAreUsedUpStaysWithinTheBound(t *testing.T) {
	m := NewMemory(MemoryConfig{MaxKeys: 1000})
	d := make([]limit.Decision, 1)
	for i := range 5000 {
		l := limit.Limit{Algorithm: limit.FixedWindow, Count: 1, Window: 24 * time.Hour}
		m.Spend(t.Context(), []limit.Charge{{Key: fmt.Sprint(i), Limit: l, Cost: 1}}, d)
	}
	if keys := m.Stats().Keys; keys > 1000 {
		t.Errorf("%d counters are kept, at most 1000", keys)
	}
}
