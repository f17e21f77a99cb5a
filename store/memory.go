package store

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// shardCount is how many locks share the keys. A request locks the shards of its keys only, in order of their number.
const shardCount = 256

// defaultMaxKeys bounds a Memory whose Config says nothing.
const defaultMaxKeys = 1_000_000

// MemoryConfig sets up a Memory. The zero value works.
type MemoryConfig struct {
	// MaxKeys is how many counters and penalties are kept at once; default 1,000,000. Beyond it the class that takes most forgets
	// the one nearest to its end first, cool-downs last.
	MaxKeys  int
	MaxBytes int64            // memory that they take at most, likewise; 0: no bound
	Now      func() time.Time // default time.Now; read as its first value plus what has passed since, so steps of the wall clock do not count
}

// MemoryStats is what a Memory counts about itself.
type MemoryStats struct {
	Keys    int64 // counters and penalties kept now
	Bytes   int64 // memory that they take, estimated from above
	Evicted int64 // counters forgotten before their time, because there were more than MaxKeys or they took more than MaxBytes
	Expired int64 // counters dropped because they were as good as never charged
}

// Memory keeps counts in this process. It is safe for concurrent use, exact under contention, and bounded: a counter is
// dropped when time has given all of it back. When there are more than MaxKeys, or they take more than MaxBytes, the class of
// charges that takes most forgets the counter that is nearest to that.
// What one process counts, no other sees.
type Memory struct {
	now      func() time.Time
	start    time.Time
	origin   int64 // µs since the epoch at start
	maxKeys  int64
	maxBytes int64
	seeds    [2]maphash.Seed

	shards  [shardCount]shard
	pots    pots
	cursor  atomic.Uint32 // which queue an operation tidies besides its own
	keys    atomic.Int64
	bytes   atomic.Int64
	evicted atomic.Int64
	expired atomic.Int64
	scratch sync.Pool // *workspace
}

// workspace is what one Spend works on, kept from call to call.
type workspace struct {
	charges []limit.Charge // of Usage only
	entries []*entry       // entries[i] holds the counter of charges[i]
	states  []*limit.State
	names   []name // names[i] is that of charges[i].Key
	touched uint64 // what touch returned; without a use the compiler would leave it out

	records []*limit.Record // records[i] is what is known of charges[i].PenaltyKey; nil without a penalty
	blank   []limit.Record  // those of clients of whom nothing is known
}

// NewMemory makes an empty store. It has no goroutines; what expired is tidied up by the operations.
func NewMemory(c MemoryConfig) *Memory {
	if c.MaxKeys <= 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = math.MaxInt64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Memory{now: c.Now, start: c.Now(), maxKeys: int64(c.MaxKeys), maxBytes: c.MaxBytes, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	m.pots.byName = make(map[uint32]*pot)
	m.origin = m.start.UnixMicro()
	m.scratch.New = func() any { return new(workspace) }
	return m
}

// clock is the instant in µs since the epoch.
func (m *Memory) clock() int64 {
	return m.origin + m.now().Sub(m.start).Microseconds()
}

// Spend decides all charges at one instant, all or nothing as package limit says, and fills decisions, which must be as
// long as charges. It never leaves one undecided, and the context does not matter to it.
func (m *Memory) Spend(_ context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	w := m.scratch.Get().(*workspace)
	now := m.decide(w, charges, decisions)
	m.scratch.Put(w)
	m.tidyNext(now)
	for m.full() && m.evict() {
	}
}

// full reports whether something has to be forgotten.
func (m *Memory) full() bool {
	return m.keys.Load() > m.maxKeys || m.bytes.Load() > m.maxBytes
}

// Usage answers what is left on each charge's counter, and takes nothing.
func (m *Memory) Usage(_ context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	w := m.scratch.Get().(*workspace)
	w.charges = peeks(w.charges[:0], charges)
	m.decide(w, w.charges, decisions)
	clear(w.charges)
	m.scratch.Put(w)
}

// Reset forgets the counters of these keys, which makes them full. It never fails.
func (m *Memory) Reset(_ context.Context, keys []string) error {
	for _, key := range keys {
		name := m.name(key)
		s := &m.shards[name.home()]
		s.mu.Lock()
		if e := s.entries.find(name); e != nil {
			m.dropLocked(e)
		}
		s.mu.Unlock()
	}
	return nil
}

// Stats is what the store has counted so far.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{Keys: m.keys.Load(), Bytes: m.bytes.Load(), Evicted: m.evicted.Load(), Expired: m.expired.Load()}
}

// Close is there because a store has one; a Memory holds nothing that needs closing.
func (m *Memory) Close() error { return nil }

// name is the name of a key.
func (m *Memory) name(key string) name {
	return name{maphash.String(m.seeds[0], key), maphash.String(m.seeds[1], key)}
}

// decide runs the charges under the locks of all their shards, and returns the instant at which it did.
func (m *Memory) decide(w *workspace, charges []limit.Charge, decisions []limit.Decision) int64 {
	var involved [shardCount / 64]uint64
	w.names = w.names[:0]
	for i := range charges {
		name := m.name(charges[i].Key)
		home := name.home()
		involved[home/64] |= 1 << (home % 64)
		w.names = append(w.names, name)
	}
	punishes := m.involvePenalties(charges, &involved)
	m.lock(&involved)
	defer m.unlock(&involved)
	now := m.clock()
	w.entries, w.states = w.entries[:0], w.states[:0]
	for _, name := range w.names {
		w.touched += m.shards[name.home()].entries.touch(name)
	}
	for i := range charges {
		e := m.entryLocked(w.names[i], charges[i].Class)
		w.entries = append(w.entries, e)
		w.states = append(w.states, &e.state)
	}
	if punishes {
		m.judgeLocked(w, charges, now, decisions)
	} else {
		limit.Decide(w.states, charges, false, now, decisions)
	}
	for i, e := range w.entries {
		e.spent = decisions[i].Remaining == 0 && !charges[i].Limit.Algorithm.Fills()
		m.settleLocked(e, e.state.Expires(charges[i].Limit, now), now)
	}
	for i, e := range w.entries {
		if i < tidyShards {
			m.tidyLocked(e.pot, e.name.home(), now)
		}
		w.entries[i], w.states[i] = nil, nil
	}
	return now
}

// lock takes the locks of the shards involved in order of their number, so that two requests never wait for each other.
func (m *Memory) lock(involved *[shardCount / 64]uint64) {
	for word, set := range involved {
		for ; set != 0; set &= set - 1 {
			m.shards[word*64+bits.TrailingZeros64(set)].mu.Lock()
		}
	}
}

func (m *Memory) unlock(involved *[shardCount / 64]uint64) {
	for word, set := range involved {
		for ; set != 0; set &= set - 1 {
			m.shards[word*64+bits.TrailingZeros64(set)].mu.Unlock()
		}
	}
}
