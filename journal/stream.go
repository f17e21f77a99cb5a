package journal

import (
	"context"
	"sync/atomic"
	"time"
)

// Bounds of the writing.
const (
	entryBytes = 48 << 10 // of rows, at which an entry is written; it may be longer by one row
	flushEvery = time.Second
	firstPause = 50 * time.Millisecond // after an entry could not be written
	longPause  = time.Second
)

// stream appends the entries of one stream, one after the other.
type stream struct {
	cfg       *Config
	collector *collector
	name      string
	stop      <-chan struct{} // closed when the recorder begins to stop: a pause ends then
	last      context.Context // ended when nothing is tried any more

	sequence int64
	over     bool  // an entry was given up, so nothing is written any more
	untold   int64 // what was dropped and is in no entry yet
	taken    int64 // rows that were taken from the shards
	pending  int64 // of these, rows that the next entry has

	rows    atomic.Int64 // that were written
	entries atomic.Int64
	failed  atomic.Int64 // attempts to append an entry
}

// append writes an entry, and tries again until it is written: with the same sequence, because only the reply may be missing. It reports false
// where the recorder stops and the entry cannot be written.
func (s *stream) append(rows []byte, ended bool) bool {
	s.sequence++
	e := Entry{Sidecar: s.cfg.Sidecar, Sequence: s.sequence, Region: s.cfg.Region, Dropped: s.untold, Ended: ended, Rows: rows}
	pause, stop := firstPause, s.stop
	for {
		err := s.cfg.Append(s.name, &e)
		if err == nil {
			s.rows.Add(s.pending)
			s.entries.Add(1)
			s.untold, s.pending = 0, 0
			return true
		}
		s.failed.Add(1)
		s.cfg.OnError(s.name, err)
		timer := time.NewTimer(pause)
		pause = min(2*pause, longPause)
		select {
		case <-timer.C:
		case <-stop:
			pause, stop = firstPause, nil
		case <-s.last.Done():
			timer.Stop()
			s.over = true
			return false
		}
		timer.Stop()
	}
}
