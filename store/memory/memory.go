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

// defaultKeys bounds a Memory whose Config has no bound.
const defaultKeys = 1_000_000

// Config sets up a Memory. The zero value works.
type Config struct {
	Keys  int              // counters and cool-downs kept at most; default 1,000,000
	Bytes int64            // memory that they take at most; 0: no bound
	Now   func() time.Time // default time.Now; read as its first value plus what has passed since
}

// Stats is what a Memory counts.
type Stats struct {
	Keys    int64 // counters and cool-downs kept now
	Bytes   int64 // memory that they take, estimated from above
	Evicted int64 // of them, forgotten before their time because there was no room
}

// Memory is a Counter of this process. It is safe for concurrent use. A counter is dropped when time has given all of
// it back. Beyond the bounds the class of charges that takes most forgets counters, nearest to full first; those that
// are spent and cool-downs go last.
type Memory struct {
	now     func() time.Time
	start   time.Time
	table   *fair.Table[value]
	scratch sync.Pool // *workspace
}

// value is a counter, or what is known of a client under a penalty.
type value struct {
	counter limit.Counter
	cooling *limit.Cooling // nil: none
}

// workspace is what one request is decided on.
type workspace struct {
	entries  []*fair.Entry[value] // of the counters, then of the clients of those with a penalty
	counters []*limit.Counter
	coolings []*limit.Cooling // nil where a charge has no penalty
	names    []fair.Name      // as entries
}

// New makes an empty one.
func New(c Config) *Memory {
	if c.Keys <= 0 {
		c.Keys = defaultKeys
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Memory{now: c.Now, start: c.Now(), table: fair.New[value](c.Keys, c.Bytes)}
	m.scratch.New = func() any { return new(workspace) }
	return m
}

// Try decides every request: there is nothing to wait for.
func (m *Memory) Try(r *limit.Request) bool {
	m.decide(r)
	return true
}

// Ask decides requests, each at one instant. The context does not matter.
func (m *Memory) Ask(_ context.Context, requests ...*limit.Request) {
	for _, r := range requests {
		m.decide(r)
	}
}

// Peek answers what is left.
func (m *Memory) Peek(_ context.Context, r *limit.Request) { m.decide(r) }

// Reset makes the counters of these keys full, and ends the cool-downs of these keys. It never fails.
func (m *Memory) Reset(_ context.Context, keys []string) error {
	for _, key := range keys {
		m.table.With(key, func(_ fair.Name, e *fair.Entry[value]) {
			if e != nil {
				m.table.Drop(e)
			}
		})
	}
	return nil
}

// Stats is what was counted so far.
func (m *Memory) Stats() (s Stats) {
	s.Keys, s.Bytes, s.Evicted = m.table.Stats()
	return s
}

// decide decides a request while all stripes of its keys are locked.
func (m *Memory) decide(r *limit.Request) {
	w := m.scratch.Get().(*workspace)
	stripes := w.name(m.table, r.Charges)
	m.table.Lock(stripes)
	defer m.table.Unlock(stripes)
	now := m.start.UnixMicro() + m.now().Sub(m.start).Microseconds()
	w.find(m.table, r.Charges)
	limit.Decide(now, false, r.Charges, w.counters, w.coolings, r.Decisions)
	w.punish(r, now)
	w.keep(m.table, r, now)
	clear(w.entries)
	clear(w.counters)
	clear(w.coolings)
	m.scratch.Put(w)
}

// name names the counters of charges, and the clients of those with a penalty, and returns their stripes.
func (w *workspace) name(t *fair.Table[value], charges []limit.Charge) (stripes fair.Set) {
	w.names = w.names[:0]
	for i := range charges {
		w.names = append(w.names, t.Name(charges[i].Key))
	}
	for i := range charges {
		if charges[i].Penalizes() {
			w.names = append(w.names, t.Name(charges[i].PenaltyKey))
		}
	}
	for _, n := range w.names {
		stripes |= t.Only(n)
	}
	return stripes
}

// find finds or makes what charges are decided on.
func (w *workspace) find(t *fair.Table[value], charges []limit.Charge) {
	w.entries, w.counters, w.coolings = w.entries[:0], w.counters[:0], w.coolings[:0]
	for i := range charges {
		e := t.At(w.names[i], charges[i].Class)
		w.entries, w.counters = append(w.entries, e), append(w.counters, &e.Value.counter)
	}
	for i := range charges {
		if !charges[i].Penalizes() {
			w.coolings = append(w.coolings, nil)
			continue
		}
		e := t.At(w.names[len(w.entries)], charges[i].Class)
		if e.Value.cooling == nil {
			e.Value.cooling = new(limit.Cooling)
		}
		w.entries, w.coolings = append(w.entries, e), append(w.coolings, e.Value.cooling)
	}
}

// punish records refusals, those of one client once.
func (w *workspace) punish(r *limit.Request, now int64) {
	for i, cooling := range w.coolings {
		if cooling == nil || !r.Charges[i].Punishes(r.Decisions[i]) {
			continue
		}
		rest := cooling.Punish(r.Charges[i].Penalty, now)
		for j := i; j < len(w.coolings); j++ {
			if w.coolings[j] != cooling {
				continue
			}
			w.coolings[j] = nil // it is recorded
			if c := &r.Charges[j]; c.Punishes(r.Decisions[j]) {
				r.Decisions[j].Punished(c, rest)
			}
		}
	}
}

// keep keeps what still matters, and drops the rest.
func (w *workspace) keep(t *fair.Table[value], r *limit.Request, now int64) {
	clients := w.entries[len(r.Charges):]
	for i := range r.Charges {
		c, d := &r.Charges[i], &r.Decisions[i]
		spent := d.Remaining == 0 && !c.Limit.Algorithm.Fills()
		t.Keep(w.entries[i], w.counters[i].Expires(), now, int64(w.counters[i].Size()), spent)
		if c.Penalizes() {
			cooling := clients[0].Value.cooling
			t.Keep(clients[0], cooling.Expires(c.Penalty), now, int64(cooling.Size()), d.Outcome == limit.Refused)
			clients = clients[1:]
		}
	}
}
