package copier

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/journal"
)

// Stats is what a recorder has done since it was made.
type Stats struct {
	Copies   bool // it has the lock, and copies
	Failures int64
	Problem  string // why it cannot copy now; empty: it can
	Streams  [2]StreamStats
}

// StreamStats is what became of one stream.
type StreamStats struct {
	Stream  string
	Entries int64 // that were stored
	Rows    int64 // in them
	Again   int64 // entries that were stored already
	Missing int64 // entries that left the stream before they were read
	Dropped int64 // rows that sidecars had no room for
	Moved   int64 // rows whose time could not be right
	Refused int64 // entries that cannot be stored
	Behind  time.Duration
}

// counts are the numbers of Stats, safe for concurrent use.
type counts struct {
	copies   atomic.Bool
	failures atomic.Int64
	streams  [2]struct{ entries, rows, again, missing, dropped, moved, refused, behind atomic.Int64 }
}

func place(stream string) int {
	if stream == journal.UsageStream {
		return 1
	}
	return 0
}

// add adds what became of entries.
func (c *counts) add(stream string, o *outcome) {
	s := &c.streams[place(stream)]
	s.entries.Add(o.entries)
	s.rows.Add(o.rows)
	s.again.Add(o.again)
	s.missing.Add(o.missing)
	s.dropped.Add(o.dropped)
	s.moved.Add(o.moved)
	s.refused.Add(int64(len(o.refused)))
}

// behind notes how old the oldest entry is that was read.
func (c *counts) behind(stream string, items []*item, now time.Time) {
	age := time.Duration(0)
	if len(items) > 0 {
		age = max(0, now.Sub(items[0].at))
	}
	c.streams[place(stream)].behind.Store(int64(age))
}

// Stats returns what was done so far.
func (r *Recorder) Stats() Stats {
	s := Stats{Copies: r.counts.copies.Load(), Failures: r.counts.failures.Load()}
	if problem := r.problem.Load(); problem != nil {
		s.Problem = *problem
	}
	for i := range s.Streams {
		c := &r.counts.streams[i]
		s.Streams[i] = StreamStats{
			Stream: r.streams[i].name, Entries: c.entries.Load(), Rows: c.rows.Load(), Again: c.again.Load(), Missing: c.missing.Load(), Dropped: c.dropped.Load(),
			Moved: c.moved.Load(), Refused: c.refused.Load(), Behind: time.Duration(c.behind.Load()),
		}
	}
	return s
}

// Queued asks Redis how many entries wait in each stream, by its name.
func (r *Recorder) Queued(ctx context.Context) (map[string]int64, error) {
	queued := map[string]int64{}
	for _, s := range r.streams {
		n, err := s.length(ctx)
		if err != nil {
			return nil, err
		}
		queued[s.name] = n
	}
	return queued, nil
}
