// Package database is the PostgreSQL of the control plane: rules, tiers, users, API keys and blocks, with who changed
// what and when, and the reports about usage.
package database

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/spillway-mesh/spillway/control/migrations"
)

const (
	connectWithin   = 3 * time.Second  // to a PostgreSQL that is away, so that callers get the error soon
	StatementWithin = 10 * time.Second // of one statement
)

// DB is the PostgreSQL of the control plane. It is safe for concurrent use.
type DB struct {
	Tasks   *pgxpool.Pool // for what the leader does
	changes *pgxpool.Pool
	reads   *pgxpool.Pool
	urgent  *pgxpool.Pool // for blocks, which must not wait for anything else

	readiness readiness
}

// errURL is in place of the error of pgx, which would show the password.
var errURL = errors.New("the URL of the database must be like postgres://user:password@host:port/name")

// Open makes a DB. It does not wait for PostgreSQL to be there; it fails where the URL cannot be read.
func Open(url string, sizes PoolSizes) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	cfg.ConnConfig.ConnectTimeout, cfg.ConnConfig.DialFunc = connectWithin, dialPatiently
	cfg.ConnConfig.RuntimeParams["application_name"] = "spillway control"
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(StatementWithin.Milliseconds())
	for name, value := range lostAfter {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	d := &DB{}
	d.changes, err = openPool(cfg, sizes.Changes, lockWithin)
	if err == nil {
		d.reads, err = openPool(cfg, sizes.Reads, lockWithin)
	}
	if err == nil {
		d.Tasks, err = openPool(cfg, tasksMost, StatementWithin)
	}
	if err == nil {
		cfg.MinConns = blocksReady
		d.urgent, err = openPool(cfg, sizes.Blocks, blockLockWithin)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// lostAfter lets PostgreSQL end the session of a control that it no longer reaches, and its locks with it, so that
// another one may lead.
var lostAfter = map[string]string{
	"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "4",
	"tcp_user_timeout": "20000", "idle_in_transaction_session_timeout": "20000",
}

// Connect makes a connection beside the pools. Its statements wait for locks as long as they may take.
func (d *DB) Connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := d.changes.Config().ConnConfig
	delete(cfg.RuntimeParams, "lock_timeout")
	return pgx.ConnectConfig(ctx, cfg)
}

// unhurried is the settings of a connection on which a statement may take as long as it needs, such as an index of a
// table that is filled.
func (d *DB) unhurried() *pgx.ConnConfig {
	cfg := d.changes.Config().ConnConfig
	cfg.DialFunc = (&net.Dialer{KeepAlive: 5 * time.Second}).DialContext
	cfg.RuntimeParams["statement_timeout"] = "0"
	delete(cfg.RuntimeParams, "lock_timeout")
	return cfg
}

// Close ends all connections.
func (d *DB) Close() {
	for _, pool := range []*pgxpool.Pool{d.changes, d.reads, d.Tasks, d.urgent} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Migrate brings the schema to the newest version, or to the version to where it is above 0, and returns the version
// that it is at. Several controls may do so at the same time.
func (d *DB) Migrate(ctx context.Context, to int64) (int64, error) {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return 0, err
	}
	db := stdlib.OpenDB(*d.unhurried())
	defer db.Close() //nolint:errcheck // nothing is lost
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files, goose.WithSessionLocker(locker))
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	if to > 0 {
		_, err = provider.UpTo(ctx, to)
	} else {
		_, err = provider.Up(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("migrate the database: %w", err)
	}
	return provider.GetDBVersion(ctx)
}

// schemaVersion is the version of the schema that this program needs.
func schemaVersion() (int64, error) {
	entries, err := migrations.Files.ReadDir(".")
	if err != nil {
		return 0, err
	}
	return goose.NumericComponent(entries[len(entries)-1].Name())
}

// errBehind means that the schema is not the one that this program needs.
var errBehind = errors.New("the schema of the database is not that of this program: start one control with --migrate")

// CheckSchema fails where the schema is older or newer than this program needs.
func (d *DB) CheckSchema(ctx context.Context) error {
	want, err := schemaVersion()
	if err != nil {
		return err
	}
	var have int64
	err = d.urgent.QueryRow(ctx,
		`SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&have)
	if sqlCode(err) == "42P01" { // the table does not exist
		return errBehind
	}
	if err != nil {
		return fmt.Errorf("ask the database: %w", err)
	}
	if have != want {
		return fmt.Errorf("%w (it is at %d, and %d is needed)", errBehind, have, want)
	}
	return nil
}

// Pending is the number of changes that are not in Redis yet.
func (d *DB) Pending(ctx context.Context) (n int64, err error) {
	err = d.reads.QueryRow(ctx, `SELECT count(*) FROM audit WHERE done_at IS NULL`).Scan(&n)
	return n, err
}

// One reads one row into a T, or returns nil.
func One[T any](ctx context.Context, q Querier, sql string, args ...any) (*T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return found, err
}

// Many reads rows.
func Many[T any](ctx context.Context, q Querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Session is a connection or a pool of them.
type Session interface {
	Querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// listed is a list that JSON shows as one, also where it is empty.
func listed[T any](all []T) []T { return append([]T{}, all...) }

// The kinds of identities that code names.
const (
	KindUser   = "user"
	KindSecret = "secret" // an API key by its digest
)
