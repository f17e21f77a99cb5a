package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	maxHole     = 1 << 32 // entries that may be missing before one: a sequence above that is not believed
	keepRefused = 10_000  // rows of record_refused
)

var errNoPlace = errors.New("the sequence is too far from the one before")

// source is what a transaction adds to a row of record_sources.
type source struct {
	last                                   int64 // sequence that is stored
	fresh                                  bool  // an entry is new
	region                                 string
	ended                                  bool
	dropped, missing, rows, moved, refused int64
}

// locked runs a transaction in which no other copier stores anything. One whose control was deposed may still be at it:
// its transaction is waited for.
func locked(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, copyLock)
		if err != nil {
			return err
		}
		return f(tx)
	})
}

// store stores entries in one transaction. Where the database refuses what is in them, each half is stored by itself,
// and at last an entry that is refused alone is left out.
func (c *Copier) store(ctx context.Context, conn *pgx.Conn, stream string, items []*item, stats *StreamStats) error {
	var done StreamStats
	var refused []*item
	err := locked(ctx, conn, func(tx pgx.Tx) (err error) {
		done, refused, err = c.copy(ctx, tx, stream, items)
		return err
	})
	switch {
	case err == nil:
		c.mark(func(*Stats) { stats.count(&done) })
		for _, i := range refused {
			c.cfg.Log.Warn("an entry of the journal cannot be stored and is left out",
				"stream", stream, "sidecar", i.Sidecar, "sequence", i.Sequence, "error", i.bad)
		}
		return nil
	case !refusesData(err) || len(items) == 1 && items[0].bad != nil:
		return err
	case len(items) == 1:
		items[0].refuse(err)
		return c.store(ctx, conn, stream, items, stats)
	}
	half := len(items) / 2
	err = c.store(ctx, conn, stream, items[:half], stats)
	if err != nil {
		return err
	}
	return c.store(ctx, conn, stream, items[half:], stats)
}

func (s *StreamStats) count(o *StreamStats) {
	s.Entries, s.Rows, s.Again = s.Entries+o.Entries, s.Rows+o.Rows, s.Again+o.Again
	s.Missing, s.Dropped = s.Missing+o.Missing, s.Dropped+o.Dropped
	s.Moved, s.Refused = s.Moved+o.Moved, s.Refused+o.Refused
}

// refusesData reports whether the database has refused what is in the rows, and would again.
func refusesData(err error) bool {
	var sql *pgconn.PgError
	if !errors.As(err, &sql) || len(sql.Code) != 5 {
		return false
	}
	switch sql.Code[:2] {
	case "22", "54": // data, limits of the program such as the size of a row of an index
		return true
	case "23": // constraints
		return !lacksPartition(err)
	}
	return false
}

// lacksPartition reports whether a row was refused because it lacks a partition: the one violation of a
// constraint without a name.
func lacksPartition(err error) bool {
	var sql *pgconn.PgError
	return errors.As(err, &sql) && sql.Code == "23514" && sql.ConstraintName == ""
}

// copy stores the entries that are not stored yet. It returns those that cannot be stored, too.
func (c *Copier) copy(ctx context.Context, tx pgx.Tx, stream string, items []*item) (done StreamStats, refused []*item,
	err error) {
	sources, err := readSources(ctx, tx, stream, items)
	if err == nil {
		err = refuseForgotten(ctx, tx, stream, sources, items)
	}
	if err != nil {
		return done, nil, fmt.Errorf("read how far the sidecars are stored: %w", err)
	}
	c.passed("sources")
	fresh, refused := done.choose(sources, items)
	now := c.now().UTC()
	err = c.copyEvents(ctx, tx, sources, fresh, now)
	if err == nil {
		err = c.addUsage(ctx, tx, sources, fresh, now)
	}
	if err != nil {
		return done, nil, err
	}
	c.passed("rows")
	err = writeRefused(ctx, tx, stream, refused)
	if err == nil {
		err = writeSources(ctx, tx, stream, sources)
	}
	for _, s := range sources {
		done.Moved += s.moved
	}
	c.passed("noted")
	return done, refused, err
}

// choose returns the entries that are not stored yet, and those that cannot be stored. It notes in the sources what the
// entries contain about themselves.
func (o *StreamStats) choose(sources map[string]*source, items []*item) (fresh, refused []*item) {
	for _, i := range items {
		s := sources[i.Sidecar]
		if s == nil || i.Sequence < 1 || i.Sequence-s.last > maxHole { // where it belongs is not known
			i.refuse(cmp.Or(i.bad, errNoPlace))
			refused = append(refused, i)
			continue
		}
		if i.Sequence <= s.last {
			o.Again++
			continue
		}
		missing := i.Sequence - s.last - 1
		s.missing, o.Missing = s.missing+missing, o.Missing+missing
		s.dropped, o.Dropped = s.dropped+i.Dropped, o.Dropped+i.Dropped
		s.last, s.fresh, s.region, s.ended = i.Sequence, true, i.Region, s.ended || i.Ended
		if i.bad != nil {
			s.refused++
			refused = append(refused, i)
			continue
		}
		o.Entries, o.Rows, s.rows = o.Entries+1, o.Rows+i.count(), s.rows+i.count()
		fresh = append(fresh, i)
	}
	o.Refused = int64(len(refused))
	return fresh, refused
}

// readSources locks the rows of the sidecars of entries. A sidecar that is new has a source without a row.
func readSources(ctx context.Context, tx pgx.Tx, stream string, items []*item) (map[string]*source, error) {
	sources := map[string]*source{}
	var names []string
	for _, i := range items {
		if i.Sidecar != "" && i.Sequence > 0 && sources[i.Sidecar] == nil {
			sources[i.Sidecar] = &source{}
			names = append(names, i.Sidecar)
		}
	}
	rows, err := tx.Query(ctx, `SELECT sidecar, sequence FROM record_sources
	  WHERE stream = $1 AND sidecar = ANY ($2) ORDER BY sidecar FOR UPDATE`, stream, names)
	if err != nil {
		return nil, err
	}
	var name string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&name, &last}, func() error {
		sources[name].last = last
		return nil
	})
	return sources, err
}

// writeSources notes how far the sidecars are stored.
func writeSources(ctx context.Context, tx pgx.Tx, stream string, sources map[string]*source) error {
	var rows columns
	for name, s := range sources {
		if s.fresh {
			rows.append(stream, name, s.last, s.region, s.ended, s.dropped, s.missing, s.rows, s.moved, s.refused)
		}
	}
	return rows.exec(ctx, tx, `INSERT INTO record_sources AS r
	    (stream, sidecar, sequence, region, ended, dropped, missing, rows, moved, refused)
	  SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::boolean[], $6::bigint[], $7::bigint[],
	    $8::bigint[], $9::bigint[], $10::bigint[])
	  ON CONFLICT (sidecar, stream) DO UPDATE SET sequence = excluded.sequence,
	    region = CASE WHEN excluded.region = '' THEN r.region ELSE excluded.region END,
	    ended = r.ended OR excluded.ended, dropped = r.dropped + excluded.dropped, missing = r.missing +
	    excluded.missing,
	    rows = r.rows + excluded.rows, moved = r.moved + excluded.moved, refused = r.refused + excluded.refused,
	    last_at = now()
	  WHERE r.sequence < excluded.sequence`)
}

// writeRefused notes entries that cannot be stored, and forgets the oldest of those before.
func writeRefused(ctx context.Context, tx pgx.Tx, stream string, refused []*item) error {
	if len(refused) == 0 {
		return nil
	}
	var rows columns
	for _, i := range refused {
		rows.append(stream, i.id, text(i.Sidecar), i.Sequence, int64(i.bytes), cleaned(i.bad.Error()))
	}
	err := rows.exec(ctx, tx, `INSERT INTO record_refused (stream, entry, sidecar, sequence, bytes, reason)
	  SELECT s, e, c, n, b, left(r, 500)
	  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[]) AS u (s, e, c, n, b, r)`)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM record_refused WHERE id <= (SELECT max(id) FROM record_refused) - $1`,
		keepRefused)
	return err
}

// columns are rows of arguments for unnest, by columns.
type columns [][]any

// append adds a row.
func (c *columns) append(row ...any) {
	if *c == nil {
		*c = make(columns, len(row))
	}
	for i, value := range row {
		(*c)[i] = append((*c)[i], value)
	}
}

// executor is a connection or a transaction.
type executor interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// exec executes a statement whose arguments are the columns, if there is a row.
func (c columns) exec(ctx context.Context, db executor, sql string) error {
	if c == nil {
		return nil
	}
	args := make([]any, len(c))
	for i, column := range c {
		args[i] = column
	}
	_, err := db.Exec(ctx, sql, args...)
	return err
}
