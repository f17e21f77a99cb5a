// Package archive moves old events from PostgreSQL into Parquet files, in a folder or an S3-compatible store, and reads
// them there. A partition is dropped once all its rows were read back from the store, and counted and summed up as the
// database has them. Each step may be cut off: the next run continues, nothing is lost, and nothing is there twice.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spillway-mesh/spillway/control/leader"
)

const (
	archiveLock   = 7_269_310_517_334_087 // number of the advisory lock of what changes the archive
	runEvery      = time.Hour
	retryEvery    = time.Minute // after an error
	waitEvery     = time.Second // for the lock, by Alone
	connectWithin = 3 * time.Second
	// of a table: less than it takes PostgreSQL to look for deadlocks, so that this side gives up
	lockWithin = "500ms"
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
	cfg   Config
	store Store
	pool  *pgxpool.Pool
	now   func() time.Time
	step  func(done string) // called after each step, for tests

	mu    sync.Mutex // guards stats
	stats Stats
}

// Stats is what Run has done since the start.
type Stats struct {
	Runs               int64     // that ended well
	LastRun            time.Time // that ended well; zero: none
	Failures           int64     // runs that failed
	Partitions         int64     // that were archived and dropped
	Files, Rows, Bytes int64     // that were written
	Deleted            int64     // files that were old enough
}

// New makes an Archiver. It waits neither for PostgreSQL nor for the store.
func New(cfg Config) (*Archiver, error) {
	if cfg.KeepEvents <= 0 || cfg.KeepArchives <= cfg.KeepEvents {
		return nil, errors.New("archives must be kept longer than events, and events longer than no time")
	}
	settings, err := pgxpool.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		// The error of pgx would show the password.
		return nil, errors.New("the URL of the database must be like postgres://user:password@host:port/name")
	}
	settings.MaxConns = 4
	settings.ConnConfig.ConnectTimeout = connectWithin
	for name, value := range map[string]string{
		"application_name": "spillway archive", "timezone": "UTC", "datestyle": "ISO", "extra_float_digits": "1",
		"statement_timeout": "0",
	} {
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

// Run archives every hour until ctx ends: a task of the leader.
func (a *Archiver) Run(ctx context.Context, _ <-chan struct{}) error {
	for {
		done, err := a.Once(ctx)
		wait := runEvery
		if ctx.Err() == nil {
			a.count(&done, err)
		}
		if err != nil && ctx.Err() == nil {
			wait = retryEvery
			a.cfg.Log.Warn("the archive cannot take a partition, which stays in the database", "error", err,
				"retry_after", wait.String())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count adds what a run did, also one that failed.
func (a *Archiver) count(done *Done, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.stats
	s.Partitions, s.Deleted = s.Partitions+int64(len(done.Partitions)), s.Deleted+int64(done.Deleted)
	s.Files, s.Rows, s.Bytes = s.Files+int64(done.Files), s.Rows+done.Rows, s.Bytes+done.Bytes
	if err != nil {
		s.Failures++
		return
	}
	s.Runs, s.LastRun = s.Runs+1, time.Now()
}

// Stats returns what Run has done so far.
func (a *Archiver) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
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

// Once archives all partitions that are old enough, and deletes files that are. It fails with ErrBusy where another
// program works on the archive.
func (a *Archiver) Once(ctx context.Context) (Done, error) {
	done := Done{Partitions: []string{}}
	err := a.hold(ctx, func(ctx context.Context) error { return a.run(ctx, &done) })
	if errors.Is(err, leader.ErrHeld) {
		err = ErrBusy
	}
	return done, err
}

// Alone runs f while nothing else changes the archive. It waits until it may.
func (a *Archiver) Alone(ctx context.Context, f func(context.Context) error) error {
	for {
		err := a.hold(ctx, f)
		if !errors.Is(err, leader.ErrHeld) {
			return err
		}
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Archiver) hold(ctx context.Context, f func(context.Context) error) error {
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, a.pool.Config().ConnConfig)
	}
	return leader.Hold(ctx, connect, archiveLock, f)
}

// run is Once with the lock.
func (a *Archiver) run(ctx context.Context, done *Done) error {
	err := a.checkColumns(ctx)
	if err == nil {
		err = a.sweep(ctx)
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
		a.cfg.Log.Info("a partition is in the archive and dropped from the database",
			"partition", p.name, "rows", done.Rows-rows, "took", time.Since(began).Round(time.Millisecond).String())
	}
	return a.expire(ctx, done)
}

// checkColumns refuses a table of events with other columns than files have, because they would be lost.
func (a *Archiver) checkColumns(ctx context.Context) error {
	var strange []string
	err := a.pool.QueryRow(ctx, `SELECT coalesce(array_agg(attname::text), '{}') FROM pg_attribute
	  WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> ALL
	  ($1)`, columns).Scan(&strange)
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
		a.cfg.Log.Info("a file of the archive was old enough and is deleted", "path", name)
	}
	return nil
}
