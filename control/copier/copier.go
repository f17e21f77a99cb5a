// Package copier copies what sidecars have written, usage and events, from two streams of Redis into PostgreSQL, each
// entry exactly once. It adds usage up by minute, hour and day, and makes the partitions ahead.
//
// An entry is known by its sidecar and its sequence. What is stored, and how far each sidecar is stored, changes in one
// transaction, and an entry is deleted from its stream after that. So a copier that ends at any step leaves entries
// that are read again, and those that are stored already are left out.
package copier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	copyLock = 7_269_310_517_334_086  // number of the lock that a transaction of a copier holds
	idleFor  = 500 * time.Millisecond // between two looks at empty streams
)

// Config sets up a Copier. All fields are required.
type Config struct {
	Connect func(context.Context) (*pgx.Conn, error) // to the database
	Redis   *redis.Client
	Keys    keys.Names
	Log     *slog.Logger
	Keep    Keep
}

// Copier copies while Run runs. Make one with New.
type Copier struct {
	cfg      Config
	streams  [2]*stream
	made     time.Time // the month for which there are partitions
	makeAt   time.Time // when partitions may be made, after a failure
	forgetAt time.Time // when sidecars that ended are forgotten next
	keepAt   time.Time // when rows that are old are forgotten next
	now      func() time.Time
	passed   func(step string) // called after each step, for tests

	mu    sync.Mutex // guards stats
	stats Stats
}

// Stats is what a copier has done since it was made.
type Stats struct {
	Copies   bool // it runs
	Failures int64
	Problem  string // why it cannot copy now; empty: it can
	Streams  [2]StreamStats
}

// StreamStats is what became of one stream.
type StreamStats struct {
	Stream  string
	Entries int64         // that were stored
	Rows    int64         // in them
	Again   int64         // entries that were stored already
	Missing int64         // entries that left the stream before they were read
	Dropped int64         // rows that sidecars dropped
	Moved   int64         // rows whose time could not be right
	Refused int64         // entries that cannot be stored
	Behind  time.Duration // age of the first entry of the last read
}

// New makes a Copier that does nothing yet.
func New(cfg Config) *Copier {
	c := &Copier{cfg: cfg, now: time.Now, passed: func(string) {}}
	for i, name := range []string{journal.EventsStream, journal.UsageStream} {
		c.streams[i] = &stream{name: name, key: cfg.Keys.Shared(name), redis: cfg.Redis, count: fewEntries}
		c.stats.Streams[i].Stream = name
	}
	return c
}

// Stats returns what was done so far.
func (c *Copier) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Queued returns how many entries wait in each stream, by its name.
func (c *Copier) Queued(ctx context.Context) (map[string]int64, error) {
	queued := map[string]int64{}
	for _, s := range c.streams {
		n, err := s.length(ctx)
		if err != nil {
			return nil, err
		}
		queued[s.name] = n
	}
	return queued, nil
}

// Run copies until ctx ends or something fails, and is called again then: it is a task of the leader. After a failure
// it returns once it copies again, so that the leader knows.
func (c *Copier) Run(ctx context.Context, _ <-chan struct{}) error {
	c.mark(func(s *Stats) { s.Copies = true })
	err := c.run(ctx)
	c.mark(func(s *Stats) {
		s.Copies = false
		if ctx.Err() != nil {
			s.Problem = "" // another one copies
		}
		if err != nil && ctx.Err() == nil {
			s.Failures, s.Problem = s.Failures+1, err.Error()
		}
	})
	return err
}

func (c *Copier) mark(set func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set(&c.stats)
}

func (c *Copier) run(ctx context.Context) error {
	conn, err := c.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is under way
	c.made = time.Time{}
	for {
		more, err := c.round(ctx, conn)
		if err != nil {
			return err
		}
		failed := false
		c.mark(func(s *Stats) { failed, s.Problem = s.Problem != "", "" })
		if failed {
			return nil
		}
		if more {
			continue
		}
		select {
		case <-time.After(idleFor):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// round names new users and API keys, makes partitions where a month has begun, and copies what each stream has, once.
// It returns whether a stream may have more. A step that fails does not hold up the next one.
func (c *Copier) round(ctx context.Context, conn *pgx.Conn) (more bool, err error) {
	err = errors.Join(c.makePartitions(ctx, conn), c.forget(ctx, conn), c.nameAll(ctx, conn))
	for i := range c.streams {
		full, wrong := c.pass(ctx, conn, c.streams[i], &c.stats.Streams[i])
		more, err = more || full, errors.Join(err, wrong)
	}
	if !more && err == nil {
		err = c.forgetSources(ctx, conn)
	}
	return more, err
}

// pass copies what one read of a stream brings.
func (c *Copier) pass(ctx context.Context, conn *pgx.Conn, s *stream, stats *StreamStats) (full bool, err error) {
	items, full, err := s.read(ctx)
	if err != nil {
		return false, fmt.Errorf("read the stream of %s: %w", s.name, err)
	}
	behind := time.Duration(0)
	if len(items) > 0 {
		behind = max(0, c.now().Sub(items[0].at))
	}
	c.mark(func(*Stats) { stats.Behind = behind })
	c.passed("read")
	if len(items) == 0 {
		return false, nil
	}
	err = c.store(ctx, conn, s.name, items, stats)
	if err != nil {
		if lacksPartition(err) { // it was archived: the next round makes it again
			c.made = time.Time{}
		}
		return false, fmt.Errorf("store %s: %w", s.name, err)
	}
	c.passed("stored")
	err = s.remove(ctx, items)
	if err != nil {
		return false, fmt.Errorf("delete what is stored from the stream of %s: %w", s.name, err)
	}
	c.passed("removed")
	return full, nil
}
