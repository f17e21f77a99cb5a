// Package memory keeps counts in this process: exact under contention, and bounded. What one process counts, no other
// sees.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/internal/fair"
)

// Config sets up a Memory. The zero value works.
type Config struct {
	Keys  int              // counters and cool-downs kept at most; default 1,000,000
	Bytes int64            // memory that they take at most; 0: no bound
	Now   func() time.Time // default time.Now; read as its first value plus what has passed since
}

// Stats is what a Memory counts.
type Stats struct {
	Keys    int64 `metric:"memory_keys" help:"Counters kept in memory."`
	Bytes   int64 `metric:"memory_bytes" help:"Memory that the counters take, estimated from above."`
	Evicted int64 `metric:"memory_evicted_total" help:"Counters forgotten early, for want of room."`
}

// Memory is a Counter of this process. It is safe for concurrent use. A counter is dropped when time has given all of
// it back. Beyond the bounds the class of charges that takes most forgets counters, nearest to full first; those that
// are spent and cool-downs go last.
type Memory struct {
	now   func() time.Time
	start time.Time

	mu    sync.Mutex // guards all below
	table *fair.Table[value]
	// What the charges of one request are decided on; entries of clients and coolings are nil without a penalty.
	entries, clients []*fair.Entry[value]
	counters         []*limit.Counter
	coolings         []*limit.Cooling
}

// value is a counter, or what is known of a client under a penalty.
type value struct {
	counter limit.Counter
	cooling limit.Cooling
}

// New makes an empty one.
func New(c Config) *Memory {
	if c.Keys <= 0 {
		c.Keys = 1_000_000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Memory{now: c.Now, start: c.Now(), table: fair.New[value](c.Keys, c.Bytes)}
}

// Try decides every request, at one instant: there is nothing to wait for.
func (m *Memory) Try(r *limit.Request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.start.UnixMicro() + m.now().Sub(m.start).Microseconds()
	m.find(r.Charges)
	limit.Decide(now, false, r.Charges, m.counters, m.coolings, r.Decisions)
	m.punish(r, now)
	m.keep(r, now)
	m.table.Trim(now)
	return true
}

// Ask decides requests. The context does not matter.
func (m *Memory) Ask(_ context.Context, requests ...*limit.Request) {
	for _, r := range requests {
		m.Try(r)
	}
}

// Peek answers what is left.
func (m *Memory) Peek(_ context.Context, r *limit.Request) { m.Try(r) }

// Reset makes the counters of these keys full, and ends the cool-downs of these keys. It never fails.
func (m *Memory) Reset(_ context.Context, keys []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.table.Drop(m.table.Get(m.table.Name(key)))
	}
	return nil
}

// Stats is what was counted so far.
func (m *Memory) Stats() (s Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Keys, s.Bytes, s.Evicted = m.table.Stats()
	return s
}

// find finds or makes what charges are decided on.
func (m *Memory) find(charges []limit.Charge) {
	m.entries, m.clients = m.entries[:0], m.clients[:0]
	m.counters, m.coolings = m.counters[:0], m.coolings[:0]
	for i := range charges {
		c := &charges[i]
		e := m.table.At(m.table.Name(c.Key), c.Class)
		var client *fair.Entry[value]
		var cooling *limit.Cooling
		if c.Penalizes() {
			client = m.table.At(m.table.Name(c.PenaltyKey), c.Class)
			cooling = &client.Value.cooling
		}
		m.entries, m.clients = append(m.entries, e), append(m.clients, client)
		m.counters, m.coolings = append(m.counters, &e.Value.counter), append(m.coolings, cooling)
	}
}

// punish records refusals, those of one client once.
func (m *Memory) punish(r *limit.Request, now int64) {
	recorded := map[*limit.Cooling]int64{}
	for i, cooling := range m.coolings {
		c, d := &r.Charges[i], &r.Decisions[i]
		if cooling == nil || !c.Punishes(*d) {
			continue
		}
		if _, ok := recorded[cooling]; !ok {
			recorded[cooling] = cooling.Punish(c.Penalty, now)
		}
		d.Punished(c, recorded[cooling])
	}
}

// keep keeps what still matters, and drops the rest.
func (m *Memory) keep(r *limit.Request, now int64) {
	for i, e := range m.entries {
		c, d := &r.Charges[i], &r.Decisions[i]
		spent := d.Remaining == 0 && !c.Limit.Algorithm.Fills()
		m.table.Keep(e, e.Value.counter.Expires(), now, int64(e.Value.counter.Size()), spent)
		if client := m.clients[i]; client != nil {
			cooling := &client.Value.cooling
			m.table.Keep(client, cooling.Expires(c.Penalty), now, int64(cooling.Size()), d.Outcome == limit.Refused)
		}
	}
}
