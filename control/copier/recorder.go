// Package copier copies the record of sidecars, usage and events, from two streams of Redis into PostgreSQL, each entry exactly once. It also adds usage
// up by hour and day, and makes the partitions ahead.
//
// An entry is known by its sidecar and its sequence. What is stored, and how far each sidecar has been stored, changes in one transaction, on the
// connection whose session holds the lock of the recorder: without the connection there is neither the lock nor the transaction. An entry is
// deleted from its stream after that. So a recorder that ends at any step leaves entries that are read again, and those that are stored already
// are left out.
package copier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/redis"
)

const (
	copyLock    = 7_269_310_517_334_086  // number of the advisory lock that the recorder at work holds
	idleFor     = 500 * time.Millisecond // between two looks at empty streams
	retryAfter  = time.Second            // after a failure
	remakeAfter = time.Minute            // after a failure to make partitions
	backTo      = 28 * 24 * time.Hour    // of a row's time, from now: never longer than the month before
	aheadTo     = 10 * time.Minute       // likewise
	fewEntries  = 16                     // that are read first
	mostEntries = 128                    // that are read together
	smallRead   = 2 << 20                // bytes: below, more entries are read together
	largeRead   = 8 << 20                // bytes: above, fewer
	keepRefused = 10_000                 // rows of record_refused
	namePage    = 5000                   // users that are named together
)

// Config sets up a Recorder. All fields are required.
type Config struct {
	Connect func(context.Context) (*pgx.Conn, error) // to the database
	Redis   *redis.Client
	Keys    descriptors.RecordKeys
	Leads   func() bool // whether this control leads
	Log     *slog.Logger
}

// Recorder copies while its control leads. Make one with New.
type Recorder struct {
	cfg     Config
	streams [2]*stream
	made    time.Time // month for which there are partitions; only Run's goroutine uses it, and the next
	tryAt   time.Time // when partitions may be made, after a failure
	counts  counts

	forgetAt time.Time // when sidecars that ended are forgotten next; only Run's goroutine uses it

	problem atomic.Pointer[string]
	now     func() time.Time
	passed  func(step string) // is told each step that is done, for tests
}

// New makes a Recorder that does nothing yet.
func New(cfg Config) *Recorder {
	r := &Recorder{cfg: cfg, now: time.Now, passed: func(string) {}}
	for i, name := range []string{journal.EventsStream, journal.UsageStream} {
		r.streams[i] = &stream{name: name, key: cfg.Keys.Shared(name), redis: cfg.Redis, count: fewEntries}
	}
	return r
}

// Run copies until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if r.cfg.Leads() {
			err := r.term(ctx)
			if err != nil && ctx.Err() == nil {
				r.note(err)
			}
		}
		r.counts.copies.Store(false)
		pause(ctx, retryAfter)
	}
}

// note keeps why the recorder cannot work now, for the status, and logs it.
func (r *Recorder) note(err error) {
	text := err.Error()
	r.counts.failures.Add(1)
	before := r.problem.Swap(&text)
	if before == nil || *before != text {
		r.cfg.Log.Warn("record: "+text, "instead", "the streams of Redis keep what has room there")
	}
}

// term copies from getting the lock until the connection is lost, or this control leads no longer. It returns nil where another recorder
// has the lock.
func (r *Recorder) term(ctx context.Context) error {
	conn, err := r.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the lock goes with the connection
	var mine bool
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, copyLock).Scan(&mine)
	if err != nil || !mine {
		return err
	}
	r.made, r.tryAt = time.Time{}, time.Time{}
	r.counts.copies.Store(true)
	for ctx.Err() == nil && r.cfg.Leads() {
		more, err := r.round(ctx, conn)
		switch {
		case conn.IsClosed():
			return err
		case err != nil:
			r.note(err)
			pause(ctx, retryAfter)
			continue
		}
		r.problem.Store(nil)
		if !more {
			pause(ctx, idleFor)
		}
	}
	return ctx.Err()
}

// round names new users and API keys, makes partitions where a month has begun, and copies what each stream has, once. It returns whether a stream
// may have more. A stream that fails does not hold up the other one.
func (r *Recorder) round(ctx context.Context, conn *pgx.Conn) (more bool, err error) {
	err = errors.Join(r.makePartitions(ctx, conn), r.nameAll(ctx, conn))
	for _, s := range r.streams {
		full, wrong := r.pass(ctx, conn, s)
		more, err = more || full, errors.Join(err, wrong)
	}
	if !more && err == nil {
		err = r.forgetSources(ctx, conn)
	}
	return more, err
}

// pass copies what one read of a stream brings.
func (r *Recorder) pass(ctx context.Context, conn *pgx.Conn, s *stream) (full bool, err error) {
	items, full, err := s.read(ctx)
	if err != nil {
		return false, fmt.Errorf("read the stream of %s: %w", s.name, err)
	}
	r.counts.behind(s.name, items, r.now())
	r.passed("read")
	if len(items) == 0 {
		return false, nil
	}
	err = r.store(ctx, conn, s.name, items)
	if err != nil {
		s.again()
		var sql *pgconn.PgError
		if errors.As(err, &sql) && sql.Code == "23514" && sql.ConstraintName == "" { // the partition was archived: the next round makes it anew
			r.made = time.Time{}
		}
		return false, fmt.Errorf("store %s: %w", s.name, err)
	}
	r.passed("stored")
	err = s.remove(ctx, items)
	if err != nil {
		return false, fmt.Errorf("delete what is stored from the stream of %s: %w", s.name, err)
	}
	s.again()
	r.passed("removed")
	return full, nil
}

// store stores entries in one transaction. Where the database refuses what is in them, each half is stored by itself, and at last an entry that
// is refused alone is left out.
func (r *Recorder) store(ctx context.Context, conn *pgx.Conn, stream string, items []*item) error {
	var done outcome
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		done, err = r.copy(ctx, tx, stream, items)
		return err
	})
	switch {
	case err == nil:
		r.counts.add(stream, &done)
		for _, i := range done.refused {
			r.cfg.Log.Warn("record: an entry is left out", "stream", stream, "sidecar", i.Sidecar, "sequence", i.Sequence, "error", i.bad)
		}
		return nil
	case !refusesData(err):
		return err
	case len(items) == 1 && items[0].bad == nil:
		items[0].refuse(err)
		return r.store(ctx, conn, stream, items)
	case len(items) == 1:
		return err
	}
	half := len(items) / 2
	err = r.store(ctx, conn, stream, items[:half])
	if err != nil {
		return err
	}
	return r.store(ctx, conn, stream, items[half:])
}

// refusesData reports whether the database has refused what is in the rows, and would again. A row without a partition is refused until there is one.
func refusesData(err error) bool {
	var sql *pgconn.PgError
	if !errors.As(err, &sql) || len(sql.Code) != 5 {
		return false
	}
	switch sql.Code[:2] {
	case "22", "54": // data, limits of the program such as the size of a row of an index
		return true
	case "23": // constraints
		return sql.ConstraintName != ""
	}
	return false
}

// pause waits.
func pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
