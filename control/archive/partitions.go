package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// partition is one of the table of events.
type partition struct {
	name   string // in the catalogue
	table  string // as statements write it
	source string // as files and rows name it: a partition that is made anew has another one
}

// oldPartitions are those whose end is long enough ago, the oldest first.
func (a *Archiver) oldPartitions(ctx context.Context) ([]partition, error) {
	rows, err := a.pool.Query(ctx, `SELECT name, t, source FROM (
	  SELECT c.relname::text AS name, c.oid::regclass::text AS t, c.relname || '/' || c.oid AS source,
	    (regexp_match(pg_get_expr(c.relpartbound, c.oid), $q$ TO \('([^']+)'\)$q$))[1]::timestamptz AS ends
	  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'events'::regclass) AS p
	  WHERE ends <= $1 ORDER BY ends`, a.now().Add(-a.cfg.KeepEvents))
	if err != nil {
		return nil, fmt.Errorf("list the partitions: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p partition, err error) {
		err = row.Scan(&p.name, &p.table, &p.source)
		return p, err
	})
}

// part is the events of a day and a region.
type part struct {
	day    time.Time
	region string
}

// state is what a part has: how many rows, and a digest that does not depend on their order. It differs where the rows
// have changed.
type state struct {
	rows   int64
	digest string
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// parts are those of a partition, or of one day of it.
func (p *partition) parts(ctx context.Context, q querier, day *time.Time) (map[part]state, error) {
	return states(ctx, q,
		`SELECT (at AT TIME ZONE 'UTC')::date, region, count(*), sum(hashtextextended(e::text, 0)::numeric)::text FROM
		  ONLY `+p.table+` AS e
	  WHERE $1::timestamptz IS NULL OR at >= $1 AND at < $1 + interval '24 hours' GROUP BY 1, 2`, day)
}

// kept are the parts of a partition that the archive has.
func (p *partition) kept(ctx context.Context, q querier) (map[part]state, error) {
	return states(ctx, q, `SELECT day, region, rows, digest::text FROM archives WHERE source = $1 AND NOT sealed`,
		p.source)
}

func states(ctx context.Context, q querier, sql string, args ...any) (map[part]state, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("count the rows: %w", err)
	}
	all := map[part]state{}
	var k part
	var s state
	_, err = pgx.ForEachRow(rows, []any{&k.day, &k.region, &s.rows, &s.digest}, func() error {
		all[k] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the rows: %w", err)
	}
	return all, nil
}

// archive puts all days of a partition into the archive that are not there, and drops the partition.
func (a *Archiver) archive(ctx context.Context, p partition, done *Done) error {
	have, err := p.parts(ctx, a.pool, nil)
	if err != nil {
		return err
	}
	kept, err := p.kept(ctx, a.pool)
	if err != nil {
		return err
	}
	a.step("rows counted")
	days := map[time.Time]bool{}
	for k, s := range have {
		if kept[k] != s {
			days[k.day] = true
		}
	}
	for _, day := range slices.SortedFunc(maps.Keys(days), time.Time.Compare) {
		err = a.archiveDay(ctx, p, day, done)
		if err != nil {
			return fmt.Errorf("%s: %w", day.Format(dayLayout), err)
		}
	}
	return a.drop(ctx, p)
}

// archiveDay writes one file for each region of a day.
func (a *Archiver) archiveDay(ctx context.Context, p partition, day time.Time, done *Done) error {
	drafts := map[string]*draft{}
	defer func() {
		for _, d := range drafts {
			d.close()
		}
	}()
	found, err := a.export(ctx, p, day, drafts)
	if err != nil {
		return err
	}
	a.step("rows exported")
	for _, region := range slices.Sorted(maps.Keys(drafts)) {
		d := drafts[region]
		s := found[part{day, region}]
		if s.rows != d.tally.rows {
			return fmt.Errorf("%d rows were read, and the database counts %d", d.tally.rows, s.rows)
		}
		bytes, err := a.archivePart(ctx, p, part{day, region}, d, s.digest)
		if err != nil {
			return err
		}
		done.Files++
		done.Bytes += bytes
		done.Rows += s.rows
	}
	return nil
}

// export reads the rows of a day in the order of their key, and writes each into the draft of its region. The states
// are those of the same moment.
func (a *Archiver) export(ctx context.Context, p partition, day time.Time,
	drafts map[string]*draft) (found map[part]state, err error) {
	err = pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			found, err = p.parts(ctx, tx, &day)
			if err != nil {
				return err
			}
			rows, err := tx.Query(ctx, `SELECT `+strings.Join(columns,
				", ")+` FROM ONLY `+p.table+` WHERE at >= $1 AND at < $1 + interval '24 hours' ORDER BY at, sidecar,
			  sequence, place`, day)
			if err != nil {
				return err
			}
			defer rows.Close()
			var r Row
			for rows.Next() {
				err = r.scan(rows)
				if err == nil {
					err = addTo(drafts, &r)
				}
				if err != nil {
					return err
				}
			}
			return rows.Err()
		})
	if err != nil {
		return nil, fmt.Errorf("read the rows: %w", err)
	}
	for _, d := range drafts {
		err = errors.Join(err, d.finish())
	}
	return found, err
}

// addTo appends a row to the draft of its region.
func addTo(drafts map[string]*draft, r *Row) error {
	d := drafts[r.Region]
	if d == nil {
		fresh, err := newDraft()
		if err != nil {
			return err
		}
		d, drafts[r.Region] = fresh, fresh
	}
	return d.write(r)
}

// archivePart keeps a file, notes it in the database, and removes files of the same rows that were written before rows
// were added. It returns how many bytes the file has.
func (a *Archiver) archivePart(ctx context.Context, p partition, k part, d *draft, digest string) (int64, error) {
	region := k.region
	before, err := List(ctx, a.store, Days{From: k.day, To: k.day.AddDate(0, 0, 1), Region: &region})
	if err != nil {
		return 0, err
	}
	var old []string
	for i := range before {
		m := &before[i]
		if m.Source != p.source || m.Checksum == d.tally.checksum() {
			continue
		}
		if m.Rows > d.tally.rows {
			return 0, fmt.Errorf("%s has %d rows of this partition, which has %d: rows are gone from the database; "+
				"remove the file where that was meant", m.Path, m.Rows, d.tally.rows)
		}
		old = append(old, m.Path)
	}
	m, err := a.keep(ctx, d, k.day, k.region, p.source, old)
	if err != nil {
		return 0, err
	}
	err = a.note(ctx, &m, digest, false)
	if err != nil {
		return 0, err
	}
	for _, path := range old {
		err = a.remove(ctx, path)
		if err != nil {
			return 0, err
		}
	}
	return m.Bytes, nil
}

// note lists a file in the database, in the place of those that it replaces.
func (a *Archiver) note(ctx context.Context, m *Manifest, digest string, sealed bool) error {
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM archives WHERE path = ANY ($1)`, m.Replaces)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			`INSERT INTO archives (path, region, day, rows, bytes, checksum, source, digest, sealed) VALUES ($1, $2,
			  $3::text::date, $4, $5, $6, $7, $8::text::numeric, $9)
		  ON CONFLICT (path) DO UPDATE SET bytes = excluded.bytes, source = excluded.source, digest = excluded.digest,
		  sealed = excluded.sealed, verified_at = now()`,
			m.Path, m.Region, m.Day, m.Rows, m.Bytes, m.Checksum, m.Source, digest, sealed)
		return err
	})
	if err != nil {
		return fmt.Errorf("note %s: %w", m.Path, err)
	}
	a.step("file noted")
	return nil
}

// errChanged means that rows were added to a partition, or taken from it, since they were archived.
var errChanged = errors.New("rows have changed since they were archived: the next run archives them again")

// drop drops a partition whose rows are all in the archive, and seals their files. No row can be added between the
// comparison and the drop.
func (a *Archiver) drop(ctx context.Context, p partition) error {
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+lockWithin+`'; LOCK TABLE `+p.table+` IN SHARE MODE`)
		if err != nil {
			return err
		}
		have, err := p.parts(ctx, tx, nil)
		if err != nil {
			return err
		}
		kept, err := p.kept(ctx, tx)
		if err != nil {
			return err
		}
		if !maps.Equal(have, kept) {
			return errChanged
		}
		_, err = tx.Exec(ctx, `UPDATE archives SET sealed = true WHERE source = $1`, p.source)
		if err != nil {
			return err
		}
		a.step("files sealed")
		_, err = tx.Exec(ctx, `DROP TABLE `+p.table)
		a.step("partition dropped, not committed")
		return err
	})
	if err != nil {
		return fmt.Errorf("drop it: %w", err)
	}
	a.step("partition dropped")
	return nil
}
