package store

import (
	"context"
	"fmt"

	"github.com/spillway-mesh/spillway/limit"
)

// Pardon ends the cool-downs of these charges' clients and forgets their refusals. It never fails.
func (m *Memory) Pardon(ctx context.Context, charges []limit.Charge) error {
	return m.Reset(ctx, penaltyKeys(charges))
}

// Pardon ends the cool-downs of these charges' clients and forgets their refusals. What this process remembers of them is
// forgotten by the charges' keys; other processes ask again within a second. It waits as long as a dial may take, as Reset
// does, and repeating it does no harm.
func (r *Redis) Pardon(ctx context.Context, charges []limit.Charge) error {
	keys := penaltyKeys(charges)
	err := r.Reset(ctx, keys)
	if r.denials != nil {
		for i := range charges {
			r.denials.forget(charges[i].Key)
		}
	}
	if err != nil {
		return fmt.Errorf("pardon %d clients: %w", len(keys), err)
	}
	return nil
}

// penaltyKeys are the keys of the penalties that the charges have.
func penaltyKeys(charges []limit.Charge) []string {
	var keys []string
	for i := range charges {
		if charges[i].PenaltyKey != "" {
			keys = append(keys, charges[i].PenaltyKey)
		}
	}
	return keys
}

// involvePenalties adds the shards of the charges' penalties, and reports whether there are any.
func (m *Memory) involvePenalties(charges []limit.Charge, involved *[shardCount / 64]uint64) bool {
	found := false
	for i := range charges {
		if !charges[i].Penalizes() {
			continue
		}
		found = true
		home := m.name(charges[i].PenaltyKey).home()
		involved[home/64] |= 1 << (home % 64)
	}
	return found
}

// judgeLocked decides charges of which some have a penalty, and keeps what has to be remembered of their clients. A client
// of whom nothing is known is judged on a blank record, and costs no entry unless something is written there.
func (m *Memory) judgeLocked(w *workspace, charges []limit.Charge, now int64, decisions []limit.Decision) {
	w.records, w.blank = w.records[:0], grow(w.blank, len(charges))
	for i := range charges {
		w.records = append(w.records, m.recordLocked(w, charges, i))
	}
	limit.Judge(w.states, w.records, charges, false, now, decisions)
	for i := range charges {
		if charges[i].Penalizes() && !w.records[i].Empty() {
			m.keepLocked(&charges[i], w.records[i], now)
		}
	}
	clear(w.records)
}

// recordLocked finds what is known of a charge's client. Charges with one key share one record, also a blank one.
func (m *Memory) recordLocked(w *workspace, charges []limit.Charge, i int) *limit.Record {
	c := &charges[i]
	if !c.Penalizes() {
		return nil
	}
	name := m.name(c.PenaltyKey)
	e := m.shards[name.home()].entries.find(name)
	if e != nil && e.record != nil {
		return e.record
	}
	for j := range i {
		if w.records[j] != nil && charges[j].PenaltyKey == c.PenaltyKey {
			return w.records[j]
		}
	}
	return &w.blank[i]
}

// keepLocked puts a record under its key, where it is not there yet, and in its place by when it ends.
func (m *Memory) keepLocked(c *limit.Charge, record *limit.Record, now int64) {
	e := m.entryLocked(m.name(c.PenaltyKey), c.Class)
	if e.record == nil {
		e.record = &limit.Record{Ends: record.Ends, Refusals: record.Refusals}
	}
	m.settleLocked(e, e.record.Expires(c.Penalty, now), now)
}
