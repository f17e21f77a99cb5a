package archive

import (
	"errors"
	"maps"
	"sync"
	"time"
)

// Steps are where a run can fail: getting the lock of the archive, reading the rows, storing a file, reading it back, noting it in the database, dropping the partition,
// removing files that are old or were left.
var Steps = [...]string{stepLock, stepRead, stepStore, stepVerify, stepNote, stepDrop, stepTidy}

const (
	stepLock   = "lock"
	stepRead   = "read"
	stepStore  = "store"
	stepVerify = "verify"
	stepNote   = "note"
	stepDrop   = "drop"
	stepTidy   = "tidy"
)

// failure is an error with the step that failed.
type failure struct {
	step string
	error
}

// Unwrap returns the error.
func (f *failure) Unwrap() error { return f.error }

// at names the step that failed, unless the error names one.
func at(step string, err error) error {
	var known *failure
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &failure{step, err}
}

// Stats is what Run has done since the start.
type Stats struct {
	Runs               int64            // that ended well
	LastRun            time.Time        // that ended well; zero: none
	Partitions         int64            // that were archived and dropped
	Files, Rows, Bytes int64            // that were written
	Deleted            int64            // files that were old enough
	Failures           map[string]int64 // runs that failed, by step
}

// counts are Stats, safe for concurrent use.
type counts struct {
	mu  sync.Mutex // guards all
	all Stats
}

// add adds what a run did, also one that failed.
func (c *counts) add(done *Done, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.all
	s.Partitions, s.Files, s.Rows, s.Bytes, s.Deleted = s.Partitions+int64(len(done.Partitions)), s.Files+int64(done.Files), s.Rows+done.Rows, s.Bytes+done.Bytes, s.Deleted+int64(done.Deleted)
	if err == nil {
		s.Runs, s.LastRun = s.Runs+1, now
		return
	}
	step := stepRead
	var known *failure
	if errors.As(err, &known) {
		step = known.step
	}
	if s.Failures == nil {
		s.Failures = map[string]int64{}
	}
	s.Failures[step]++
}

// Stats returns what Run has done so far.
func (a *Archiver) Stats() Stats {
	a.counts.mu.Lock()
	defer a.counts.mu.Unlock()
	s := a.counts.all
	s.Failures = maps.Clone(s.Failures)
	return s
}
