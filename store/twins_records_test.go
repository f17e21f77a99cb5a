package store_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// The part of the walk that is about throttles and penalties.

const (
	walkRecords = 8
	noRecord    = -1
)

// walkSeen counts what the walk has met, so that it cannot pass by never meeting anything.
type walkSeen struct {
	waits, cooling, dry, repeated int
}

func (s *walkSeen) add(q *request) {
	for _, d := range q.decisions {
		switch {
		case d.Wait > 0:
			s.waits++
		case d.Penalized && d.Outcome == limit.Refused:
			s.cooling++
		case d.Penalized:
			s.dry++
		}
	}
}

func (s *walkSeen) enough(kind limit.Algorithm) error {
	const few = walkSteps / 3000
	if s.cooling < few || s.dry < few || s.repeated < few || kind == limit.TokenBucket && s.waits < few {
		return fmt.Errorf("the walk met too little: %+v", *s)
	}
	if kind != limit.TokenBucket && s.waits > 0 {
		return fmt.Errorf("%d answers of a %v wait", s.waits, kind)
	}
	return nil
}

// edge is an instant at which something in a record is just over, or now.
func (w *walker) edge() int64 {
	k := w.random.IntN(walkRecords)
	r, window := &w.records[k], w.penalties[k].Window.Microseconds()
	var edges []int64
	for _, at := range r.Refusals {
		edges = append(edges, at+window)
	}
	for _, at := range r.Ends {
		edges = append(edges, at, at+window)
	}
	if len(edges) == 0 {
		return w.now
	}
	return pick(w, edges...)
}

// wait makes up a longest wait: often one that some tokens come back in.
func (w *walker) wait(l limit.Limit) time.Duration {
	longest := int64(min(l.Window, 2*limit.LongestWait))
	return time.Duration(pick(w, w.random.Int64N(longest+1), w.random.Int64N(longest/10+1), longest, int64(2*limit.LongestWait)))
}

// penalty makes up a penalty, at times one out of bounds.
func (w *walker) penalty() limit.Penalty {
	const day = 24 * time.Hour
	p := limit.Penalty{Threshold: 1 + w.random.Int64N(5), Window: w.window(), CoolDown: w.window(), DryRun: w.chance(0.25)}
	if w.chance(0.5) {
		p.Window, p.CoolDown = pick(w, day, 30*day, 365*day), pick(w, time.Hour, 5*time.Hour) // to be met often, as the clock jumps
	}
	for range 1 + w.random.IntN(4) {
		p.Multipliers = append(p.Multipliers, 1+w.random.Int64N(4))
	}
	switch p2 := w.random.Float64(); {
	case p2 < 0.2:
		p = limit.Penalty{Threshold: 20 + w.random.Int64N(40), Window: pick(w, p.Window, limit.MaxWindow, limit.MaxWindow/20), CoolDown: time.Second}
	case p2 < 0.25:
		p.Multipliers = slices.Repeat([]int64{1, math.MaxInt64, -3}, 7)
	}
	return p
}

// punish gives the last charge of a request a penalty, or none. It returns the number of its record.
func (w *walker) punish(q *request) int {
	c := &q.charges[len(q.charges)-1]
	if w.chance(0.6) {
		return noRecord
	}
	k := w.random.IntN(walkRecords)
	if n := len(q.records); n > 0 && q.records[n-1] != noRecord && w.chance(0.5) {
		k = q.records[n-1] // two limits of one rule
	}
	if w.chance(0.01) {
		w.penalties[k] = w.penalty()
	}
	p := w.penalties[k]
	if w.chance(0.02) {
		p = w.penalty()
	}
	c.Penalty, c.PenaltyKey = &p, w.recordKey(k)
	return k
}

func (w *walker) recordKey(k int) string { return fmt.Sprintf("walk:%v:record:%d", w.kind, k) }

// judge lets the Go twin decide, and notes when the records it changed expire.
func (w *walker) judge(q *request, states []*limit.State) {
	records := make([]*limit.Record, len(q.charges))
	before := map[int]limit.Record{}
	for i, k := range q.records {
		if k != noRecord {
			records[i] = &w.records[k]
			before[k] = limit.Record{Ends: slices.Clone(w.records[k].Ends), Refusals: slices.Clone(w.records[k].Refusals)}
		}
	}
	if len(before) == 0 {
		limit.Decide(states, q.charges, q.refused, q.now, q.decisions)
		return
	}
	limit.Judge(states, records, q.charges, q.refused, q.now, q.decisions)
	for k, r := range before {
		if equalRecords(r, w.records[k]) {
			continue
		}
		if n := len(w.records[k].Ends); len(w.records[k].Refusals) == 0 && n > 1 {
			w.seen.repeated++
		}
		for i := range q.charges {
			if q.records[i] == k && q.charges[i].Penalizes() {
				w.recordEnds[k] = milliseconds(w.records[k].Expires(q.charges[i].Penalty, q.now))
			}
		}
	}
}

func equalRecords(a, b limit.Record) bool {
	return slices.Equal(a.Ends, b.Ends) && slices.Equal(a.Refusals, b.Refusals)
}

func (w *walker) askRecords(pipe redis.Pipeliner) (values []*redis.StringCmd, ends []*redis.DurationCmd) {
	for k := range walkRecords {
		values = append(values, pipe.Get(context.Background(), w.recordKey(k)))
		ends = append(ends, pipe.PExpireTime(context.Background(), w.recordKey(k)))
	}
	return values, ends
}

func (w *walker) compareRecords(values []*redis.StringCmd, ends []*redis.DurationCmd) error {
	for k := range walkRecords {
		value, err := values[k].Bytes()
		if err != nil && err != redis.Nil {
			return fmt.Errorf("get record %d: %w", k, err)
		}
		record, err := decodeRecord(value)
		if err != nil {
			return fmt.Errorf("record %d: %w", k, err)
		}
		if !equalRecords(record, w.records[k]) {
			return fmt.Errorf("record %d differs (- Go, + Lua)\n%s", k, cmp.Diff(w.records[k], record))
		}
		if end := ends[k].Val().Milliseconds(); value != nil && end != w.recordEnds[k] {
			return fmt.Errorf("record %d expires at %d ms, not at %d: %+v", k, end, w.recordEnds[k], record)
		}
	}
	return nil
}

// decodeRecord reads what the script keeps of a client under a penalty; no key is the zero Record.
func decodeRecord(value []byte) (limit.Record, error) {
	var r limit.Record
	if value == nil {
		return r, nil
	}
	n, rest := int(value[0]), value[1:]
	if len(rest)%8 != 0 || 8*n > len(rest) || len(rest) == 0 {
		return r, fmt.Errorf("a record of %d cool-downs in %d bytes is cut", n, len(rest))
	}
	for i := 0; i < len(rest); i += 8 {
		at := int64(math.Float64frombits(binary.BigEndian.Uint64(rest[i:])))
		if i < 8*n {
			r.Ends = append(r.Ends, at)
		} else {
			r.Refusals = append(r.Refusals, at)
		}
	}
	return r, nil
}
