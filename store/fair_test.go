package store

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// classed is a charge on a counter of a class.
func classed(class uint32, key string, l limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Key: key, Limit: l, Cost: cost, Class: class}
}

// TestMemoryEvictsFromTheClassThatTakesMost: whatever a flood counts by, it costs its own class only.
func TestMemoryEvictsFromTheClassThatTakesMost(t *testing.T) {
	for name, c := range map[string]MemoryConfig{"keys": {MaxKeys: 1000}, "bytes": {MaxBytes: 1000 * 300}} {
		t.Run(name, func(t *testing.T) {
			c.Now = newHand().Now
			m := NewMemory(c)
			short := bucket(5, time.Minute)
			for i := range 100 {
				spend(m, classed(1, fmt.Sprint("login ", i), short, 5))
			}
			for i := range 20_000 {
				spend(m, classed(2, fmt.Sprint("day ", i), bucket(1, 24*time.Hour), 1))
			}
			for i := range 100 {
				want(t, "a login beside the flood", spend(m, classed(1, fmt.Sprint("login ", i), short, 1))[0], limit.Refused, 0, 0)
			}
			if s := m.Stats(); s.Evicted < 10_000 {
				t.Errorf("%+v: the flood was not evicted", s)
			}
			wantInOrder(t, m)
		})
	}
}

// TestMoreClassesThanPots: classes beyond the pots share them, and what is empty is used again.
func TestMoreClassesThanPots(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{MaxKeys: 5000, Now: clock.Now})
	fill := func(first int) {
		for class := range 4 * maxPots {
			spend(m, classed(uint32(first+class), fmt.Sprint("key ", first+class), bucket(1, time.Minute), 1))
		}
	}
	fill(0)
	if pots, keys := len(m.pots.list()), m.Stats().Keys; pots != maxPots || keys != 4*maxPots {
		t.Fatalf("%d pots with %d keys, want %d with %d", pots, keys, maxPots, 4*maxPots)
	}
	clock.Turn(time.Hour)
	for range 4 * maxPots * shardCount {
		m.tidyNext(m.clock())
	}
	if s := m.Stats(); s.Keys != 0 || s.Bytes != 0 {
		t.Fatalf("%+v after all have expired, want nothing", s)
	}
	for round := range 10 {
		fill((round + 1) << 20)
	}
	wantInOrder(t, m)
	if names := len(m.pots.byName); names > maxNames {
		t.Errorf("%d classes are known, want at most %d", names, maxNames)
	}
}

// TestMemoryTakesNoMoreThanItCounts compares the estimate with the heap, for keys of several lengths, logs and records.
func TestMemoryTakesNoMoreThanItCounts(t *testing.T) {
	log := limit.Limit{Algorithm: limit.SlidingLog, Count: 100, Window: time.Hour}
	for name, fill := range map[string]func(m *Memory, i int){
		"short keys": func(m *Memory, i int) { spend(m, classed(0, fmt.Sprint(i), bucket(5, time.Hour), 1)) },
		"usual keys": func(m *Memory, i int) {
			spend(m, classed(0, fmt.Sprintf("rl1:{shop|10.0.%d}:ip:per-ip:1:tb", i), bucket(5, time.Hour), 1))
		},
		"long keys": func(m *Memory, i int) {
			spend(m, classed(0, strings.Repeat("x", 1000)+fmt.Sprint(i), bucket(5, time.Hour), 1))
		},
		"logs": func(m *Memory, i int) {
			for range 10 {
				spend(m, classed(0, fmt.Sprint(i/10), log, 1))
			}
		},
		"records": func(m *Memory, i int) {
			c := classed(0, fmt.Sprint("key ", i), bucket(1, time.Hour), 2)
			spend(m, punished(c, limit.Penalty{Threshold: 5, Window: time.Hour, CoolDown: time.Hour}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			m := NewMemory(MemoryConfig{})
			for i := range 100_000 {
				fill(m, i)
			}
			took, counted := heap()-before, m.Stats().Bytes
			t.Logf("%d bytes on the heap, %d counted, for %d keys", took, counted, m.Stats().Keys)
			const fixed = 1 << 20 // of an empty store
			if took > counted+fixed {
				t.Errorf("the store takes %d bytes and counts %d", took, counted)
			}
			if counted > 3*took {
				t.Errorf("the store counts %d bytes and takes %d", counted, took)
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

// spent takes in the reply about a charge on a spent counter.
func spent(d *denials, c *limit.Charge) {
	d.remember(answer{
		charge: c, decision: &limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour}, state: new(limit.State),
		sent: d.clock(), mark: d.mark(c.Key), refused: true,
	})
}

// TestDenialsDropFromTheClassThatTakesMost: a flood of refused clients of one rule leaves the denials of another.
func TestDenialsDropFromTheClassThatTakesMost(t *testing.T) {
	for name, bounds := range map[string]struct {
		entries int
		bytes   int64
	}{"entries": {6400, 0}, "bytes": {1_000_000, 6400 * 300}} {
		t.Run(name, func(t *testing.T) {
			d := newDenials(bounds.entries, bounds.bytes, newHand().Now)
			for i := range 640 {
				c := classed(1, fmt.Sprint("login ", i), bucket(5, time.Minute), 1)
				spent(d, &c)
			}
			for i := range 100_000 {
				c := classed(2, fmt.Sprint("day ", i), bucket(5, 24*time.Hour), 1)
				spent(d, &c)
			}
			left := 0
			for i := range 640 {
				key := fmt.Sprint("login ", i)
				if d.shard(key).memos[key] != nil {
					left++
				}
			}
			if left < 600 { // one in e^16 looks finds none of the flood
				t.Errorf("%d of 640 denials are left beside the flood of another rule", left)
			}
			if n, bytes := d.entries.Load(), d.bytes.Load(); n > int64(bounds.entries) || bounds.bytes > 0 && bytes > bounds.bytes {
				t.Errorf("%d denials of %d bytes are known, more than the bounds", n, bytes)
			}
			if d.drops.Load() == 0 {
				t.Error("no drop was counted")
			}
			d.clear()
			if n, bytes := d.entries.Load(), d.bytes.Load(); n != 0 || bytes != 0 {
				t.Errorf("%d denials of %d bytes after all are cleared", n, bytes)
			}
		})
	}
}

// TestDenialsTakeNoMoreThanTheyCount compares the estimate with the heap.
func TestDenialsTakeNoMoreThanTheyCount(t *testing.T) {
	for name, size := range map[string]int{"short": 1, "long": 1000} {
		before := heap()
		d := newDenials(1_000_000, 0, time.Now)
		for i := range 100_000 {
			c := classed(1, strings.Repeat("x", size)+fmt.Sprint(i), limit.Limit{Algorithm: limit.SlidingLog, Count: 5, Window: time.Hour}, 1)
			spent(d, &c)
		}
		took, counted := heap()-before, d.bytes.Load()
		t.Logf("%s keys: %d bytes on the heap, %d counted", name, took, counted)
		if took > counted+1<<20 || counted > 3*took {
			t.Errorf("%s keys: the denials take %d bytes and count %d", name, took, counted)
		}
		runtime.KeepAlive(d)
	}
}

// TestMemoryBytesReturnToZero: what was charged and given back leaves nothing counted.
func TestMemoryBytesReturnToZero(t *testing.T) {
	m := NewMemory(MemoryConfig{})
	for i := range 100 {
		spend(m, classed(uint32(i%3), fmt.Sprint(i), bucket(5, time.Hour), 1))
	}
	for i := range 100 {
		err := m.Reset(context.Background(), []string{fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.Keys != 0 || s.Bytes != 0 {
		t.Fatalf("%+v, want nothing", s)
	}
}

// TestExpiredCountersGoBeforeLiveOnes: a full store drops what has expired in any class before it forgets a live counter.
func TestExpiredCountersGoBeforeLiveOnes(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{MaxKeys: 10_000, Now: clock.Now})
	for i := range 4500 {
		spend(m, classed(1, fmt.Sprint("past ", i), bucket(1, time.Second), 1))
	}
	for class := range 60 {
		spend(m, classed(uint32(100+class), fmt.Sprint("other ", class), bucket(1, time.Hour), 1))
	}
	clock.Turn(time.Minute)
	for i := range 9000 {
		spend(m, classed(2, fmt.Sprint("live ", i), bucket(1, time.Hour), 1))
	}
	if s := m.Stats(); s.Evicted > 0 {
		t.Errorf("%+v: live counters were forgotten while others had expired", s)
	}
	wantInOrder(t, m)
}

// TestManyKeysArePaidForByTheClassThatHasThem: where there are too many keys, a class with few large ones keeps them.
func TestManyKeysArePaidForByTheClassThatHasThem(t *testing.T) {
	m := NewMemory(MemoryConfig{MaxKeys: 1000, Now: newHand().Now})
	log := limit.Limit{Algorithm: limit.SlidingLog, Count: 500, Window: time.Hour}
	large := classed(1, "large", log, 500)
	for range 500 {
		large.Cost = 1
		spend(m, large)
	}
	for i := range 5000 {
		spend(m, classed(2, fmt.Sprint("small ", i), bucket(1, time.Hour), 1))
	}
	want(t, "the large counter", spend(m, large)[0], limit.Refused, 0, 0)
}

// TestAnEmptiedQueueGivesItsMemoryBack: no bound counts the room that a queue keeps, so it keeps little.
func TestAnEmptiedQueueGivesItsMemoryBack(t *testing.T) {
	clock := newHand()
	m := NewMemory(MemoryConfig{MaxKeys: 20_000, Now: clock.Now})
	for class := range 10 {
		for i := range 20_000 {
			spend(m, classed(uint32(class), fmt.Sprint(class, " ", i), bucket(1, time.Second), 1))
		}
		clock.Turn(time.Minute)
	}
	slots := 0
	for _, p := range m.pots.list() {
		for i := range p.queues {
			slots += cap(p.queues[i])
		}
	}
	if keys := int(m.Stats().Keys); slots > 4*keys+64*shardCount*10 {
		t.Errorf("room for %d entries is kept in queues of %d", slots, keys)
	}
}
