// Package archive moves old events from PostgreSQL into Parquet files, in a folder or an S3-compatible store, and reads them there. A
// partition is dropped once all its rows were read back from the store, and counted and summed up as the database has them. Each step
// may be cut off: the next run goes on, nothing is lost, and nothing is there twice.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	unlockWithin  = time.Second
	lockNumber    = 7_269_310_517_334_087 // of the advisory lock of what changes the archive
	runEvery      = time.Hour
	retryEvery    = time.Minute // after an error
	lookEvery     = time.Second // whether this control leads
	connectWithin = 3 * time.Second
	lockWithin    = "500ms" // of a table: less than it takes PostgreSQL to look for deadlocks, so that this side gives up
)

// Config sets up an Archiver. All fields are required.
type Config struct {
	DatabaseURL  string
	Store        Store
	KeepEvents   time.Duration // partitions that end longer ago are archived
	KeepArchives time.Duration // files of days that ended longer ago are deleted
	Log          *slog.Logger
}

// Archiver moves events into an archive. Make one with New. Of several, one works at a time.
type Archiver struct {
	cfg    Config
	store  Store
	pool   *pgxpool.Pool
	now    func() time.Time
	step   func(done string) // called after each step
	counts counts
}

// New makes an Archiver. It waits neither for PostgreSQL nor for the store.
func New(cfg Config) (*Archiver, error) {
	if cfg.KeepEvents <= 0 || cfg.KeepArchives <= cfg.KeepEvents {
		return nil, errors.New("archives must be kept longer than events, and events longer than no time")
	}
	settings, err := pgxpool.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		return nil, errors.New("the URL of the database cannot be read: write postgres://user:password@host:port/name") // pgx would show the password
	}
	settings.MaxConns = 4
	settings.ConnConfig.ConnectTimeout = connectWithin
	for name, value := range map[string]string{"application_name": "spillway archive", "timezone": "UTC", "datestyle": "ISO", "extra_float_digits": "1", "statement_timeout": "0"} {
		settings.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &Archiver{cfg: cfg, store: cfg.Store, pool: pool, now: time.Now, step: func(string) {}}, nil
}

// Close ends all connections.
func (a *Archiver) Close() { a.pool.Close() }

// Run archives every hour, while leads returns true, until ctx ends.
func (a *Archiver) Run(ctx context.Context, leads func() bool) {
	var next time.Time
	for ctx.Err() == nil {
		if leads() && !time.Now().Before(next) {
			next = time.Now().Add(runEvery)
			done, err := a.Once(ctx)
			if ctx.Err() == nil {
				a.counts.add(&done, err, time.Now())
			}
			if err != nil && ctx.Err() == nil {
				next = time.Now().Add(retryEvery)
				a.cfg.Log.Warn("archive: "+err.Error(), "instead", "the partition stays, and the next run goes on")
			}
		}
		timer := time.NewTimer(lookEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Done is what a run did.
type Done struct {
	Partitions []string `json:"partitions"` // that were archived and dropped
	Files      int      `json:"files"`      // that were written
	Rows       int64    `json:"rows"`       // in them
	Bytes      int64    `json:"bytes"`      // of them
	Deleted    int      `json:"deleted"`    // files that were old enough
}

// ErrBusy means that another program works on the archive.
var ErrBusy = errors.New("another program works on the archive: try again later")

// Once archives all partitions that are old enough, and deletes files that are.
func (a *Archiver) Once(ctx context.Context) (Done, error) {
	done := Done{Partitions: []string{}}
	err := a.alone(ctx, `SELECT pg_try_advisory_lock($1)`, func(ctx context.Context) error { return a.run(ctx, &done) })
	return done, err
}

// Alone runs f while nothing else changes the archive. It waits until it may.
func (a *Archiver) Alone(ctx context.Context, f func(context.Context) error) error {
	return a.alone(ctx, `SELECT pg_advisory_lock($1) IS NOT NULL`, f)
}

// alone runs f with the lock, which goes with the connection.
func (a *Archiver) alone(ctx context.Context, take string, f func(context.Context) error) error {
	conn, err := pgx.ConnectConfig(ctx, a.pool.Config().ConnConfig)
	if err != nil {
		return at(stepLock, fmt.Errorf("connect to the database: %w", err))
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the lock goes with the connection
	var mine bool
	err = conn.QueryRow(ctx, take, lockNumber).Scan(&mine)
	if err != nil {
		return at(stepLock, fmt.Errorf("lock the archive: %w", err))
	}
	if !mine {
		return at(stepLock, ErrBusy)
	}
	err = f(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockWithin)
	defer cancel()
	_, _ = conn.Exec(last, `SELECT pg_advisory_unlock($1)`, lockNumber) // the server may see only later that the connection is closed
	return err
}

// run is Once with the lock.
func (a *Archiver) run(ctx context.Context, done *Done) error {
	err := a.checkColumns(ctx)
	if err == nil {
		err = at(stepTidy, a.sweep(ctx))
	}
	if err != nil {
		return err
	}
	old, err := a.oldPartitions(ctx)
	if err != nil {
		return err
	}
	for _, p := range old {
		began, rows := time.Now(), done.Rows
		err = a.archive(ctx, p, done)
		if err != nil {
			return fmt.Errorf("the partition %s: %w", p.name, err)
		}
		done.Partitions = append(done.Partitions, p.name)
		a.cfg.Log.Info("archive: a partition is in the archive, and dropped", "partition", p.name, "rows", done.Rows-rows, "took", time.Since(began).Round(time.Millisecond).String())
	}
	return at(stepTidy, a.expire(ctx, done))
}

// checkColumns refuses a table of events with other columns than files have, because they would be lost.
func (a *Archiver) checkColumns(ctx context.Context) error {
	var strange []string
	err := a.pool.QueryRow(ctx, `SELECT coalesce(array_agg(attname::text), '{}') FROM pg_attribute
	  WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> ALL ($1)`, columns).Scan(&strange)
	if err != nil {
		return fmt.Errorf("read the columns of events: %w", err)
	}
	if len(strange) > 0 {
		return fmt.Errorf("the table events has columns that files of the archive do not have: %v", strange)
	}
	return nil
}

// expire deletes files of days that are old enough.
func (a *Archiver) expire(ctx context.Context, done *Done) error {
	before := a.now().Add(-a.cfg.KeepArchives)
	names, err := listed(ctx, a.store, Days{})
	if err != nil {
		return err
	}
	for _, name := range names {
		day, _ := dayOf(name)
		if day.AddDate(0, 0, 1).After(before) || !strings.HasSuffix(name, fileEnding) {
			continue
		}
		err = a.remove(ctx, name)
		if err != nil {
			return err
		}
		done.Deleted++
		a.cfg.Log.Info("archive: deleted a file, because it is old enough", "path", name)
	}
	return nil
}
