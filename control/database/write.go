package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Subject is what a change is about.
type Subject struct{ Domain, Kind, Name string }

// Actor is who makes a change.
type Actor struct{ Name, Address string }

// Write runs a change in one transaction, in the name of who makes it. Triggers add the lines of the audit, raise
// revisions and wake the leader.
func (d *DB) Write(ctx context.Context, by Actor, action string, f func(pgx.Tx) error) error {
	return write(ctx, d.changes, by, action, f)
}

// write is Write by a pool or a connection.
func write(ctx context.Context, in beginner, by Actor, action string, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, in, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('spillway.actor', $1, true),
		  set_config('spillway.address', $2, true), set_config('spillway.action', $3, true)`,
			by.Name, by.Address, action)
		if err == nil {
			err = f(tx)
		}
		if change, is := ctx.Value(watchKey{}).(*Change); is && err == nil {
			err = tx.QueryRow(ctx, `SELECT coalesce(nullif(current_setting('spillway.changed', true), '')::bigint, 0)`).
				Scan(&change.line)
		}
		return err
	})
}

// Change is a change whose way to Redis is watched. Redis has nothing to do with the zero value.
type Change struct{ line int64 } // of the audit, the last one

type watchKey struct{}

// Watch lets what is written with the context be found in Redis.
func Watch(ctx context.Context) (context.Context, *Change) {
	change := &Change{}
	return context.WithValue(ctx, watchKey{}, change), change
}

// Made reports whether something was written that Redis has to have.
func (c *Change) Made() bool { return c.line > 0 }

// InRedis reports whether Redis has a change, and it was announced to sidecars.
func (d *DB) InRedis(ctx context.Context, c *Change) (is bool, err error) {
	err = d.urgent.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM audit WHERE id = $1 AND done_at IS NULL)`,
		c.line).Scan(&is)
	return is, err
}

// urgently is Write by the connections that blocks have. It tries again where another change holds what it needs, and
// interrupts the merge of a load, which begins again.
func (d *DB) urgently(ctx context.Context, by Actor, action string, f func(pgx.Tx) error) (err error) {
	for range blockAttempts {
		err = write(ctx, d.urgent, by, action, f)
		if sqlCode(err) != CodeLockTimeout || ctx.Err() != nil {
			return err
		}
		_, stopped := d.urgent.Exec(ctx, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
		  WHERE datname = current_database() AND application_name = $1`, mergeName)
		if stopped != nil {
			return stopped
		}
	}
	return err
}

// ErrNotFound means that the row does not exist.
var ErrNotFound = errors.New("not found")

// Conflict is the error of a change of what another has changed meanwhile.
type Conflict struct{ have int64 }

// Error shows the revision that there is.
func (c *Conflict) Error() string {
	if c.have == 0 {
		return "it does not exist: leave if-match out, or send if-none-match: *"
	}
	return fmt.Sprintf("it is at revision %d: read it again, and send that revision in if-match", c.have)
}

// check reports whether what is at a revision, 0 for nothing, may be changed by a caller who wants it at another one;
// nil: at any.
func check(want *int64, have int64) error {
	if want != nil && *want != have {
		return &Conflict{have}
	}
	return nil
}

// revision locks the row that a statement selects, and returns its revision; 0: it does not exist.
func revision(ctx context.Context, tx pgx.Tx, lock string, args pgx.NamedArgs) (have int64, err error) {
	err = tx.QueryRow(ctx, lock+` FOR UPDATE`, args).Scan(&have)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return have, err
}

// put writes one row, which lock selects, and returns it as it is then. at is its revision.
func put[T any](
	ctx context.Context, tx pgx.Tx, want *int64, lock, sql string, args pgx.NamedArgs, at func(*T) int64,
) (*T, error) {
	have, err := revision(ctx, tx, lock, args)
	if err == nil {
		err = check(want, have)
	}
	if err != nil {
		return nil, err
	}
	after, err := One[T](ctx, tx, sql, args)
	if err == nil && have == 0 && at(after) > 1 { // another caller has made it since
		err = check(want, at(after)-1)
	}
	return after, err
}

// remove deletes one row, which lock selects.
func remove(ctx context.Context, tx pgx.Tx, want *int64, lock, sql string, args pgx.NamedArgs) error {
	have, err := revision(ctx, tx, lock, args)
	if err == nil && have == 0 {
		err = ErrNotFound
	}
	if err == nil {
		err = check(want, have)
	}
	if err == nil {
		_, err = tx.Exec(ctx, sql, args)
	}
	return err
}

// makeDomain makes a domain, unless it is there, before what is made in it: a long change would else hold up all others
// of a domain that is new.
func makeDomain(ctx context.Context, s Session, by Actor, domain string) error {
	_, err := s.Exec(ctx, `INSERT INTO domains (name, created_by) VALUES ($1, $2) ON CONFLICT DO NOTHING`, domain,
		by.Name)
	return err
}
