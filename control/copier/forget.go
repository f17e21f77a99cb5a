package copier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	keepSources   = keepMinutes    // from the last entry of a sidecar until its rows of record_sources are forgotten
	forgetEvery   = time.Hour      // from one time that rows are forgotten to the next
	clocksDiffer  = 24 * time.Hour // by which the clocks of Redis and PostgreSQL may differ
	forgottenName = ""             // the sidecar whose rows hold the sums of those that are forgotten
)

// errForgotten means that an entry may have been stored: its sidecar, if it had a row, is forgotten.
var errForgotten = errors.New("the entry is from before the last sidecars that are forgotten, so that it may " +
	"have been stored: Redis was restored from an old copy, or its clock is wrong")

// forgetSources adds the rows of sidecars that were silent for long to the row of those that are forgotten. It is
// called when the streams were empty: what such a sidecar wrote is stored then, and an entry of that time that comes
// later has come before.
func (c *Copier) forgetSources(ctx context.Context, conn *pgx.Conn) error {
	now := c.now()
	if now.Before(c.forgetAt) {
		return nil
	}
	const sql = `WITH gone AS (DELETE FROM record_sources s WHERE sidecar <> $2
	    AND NOT EXISTS (SELECT FROM record_sources o WHERE o.sidecar = s.sidecar AND o.last_at >= $1) RETURNING *)
	  INSERT INTO record_sources AS r
	    (sidecar, stream, sequence, region, first_at, last_at, ended, dropped, missing, rows, moved, refused)
	  SELECT $2, stream, count(*), '', min(first_at), max(last_at), true, sum(dropped), sum(missing), sum(rows),
	  sum(moved),
	    sum(refused) FROM gone GROUP BY stream
	  ON CONFLICT (sidecar, stream) DO UPDATE SET sequence = r.sequence + excluded.sequence,
	    last_at = greatest(r.last_at, excluded.last_at), dropped = r.dropped + excluded.dropped,
	    missing = r.missing + excluded.missing, rows = r.rows + excluded.rows, moved = r.moved + excluded.moved,
	    refused = r.refused + excluded.refused`
	err := locked(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, now.Add(-keepSources), forgottenName)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget sidecars that ended: %w", err)
	}
	c.forgetAt = now.Add(forgetEvery)
	return nil
}

// refuseForgotten refuses entries of sidecars without a row that are as old as those that are forgotten. What came
// before them is not missing.
func refuseForgotten(ctx context.Context, tx pgx.Tx, stream string, sources map[string]*source, items []*item) error {
	var last *time.Time
	err := tx.QueryRow(ctx, `SELECT max(last_at) FROM record_sources WHERE sidecar = $1 AND stream = $2`,
		forgottenName, stream).Scan(&last)
	if err != nil || last == nil {
		return err
	}
	known := map[*source]bool{}
	for _, s := range sources {
		known[s] = s.last > 0
	}
	for _, i := range items {
		s := sources[i.Sidecar]
		if s == nil || known[s] || i.Sequence < 1 || i.at.After(last.Add(clocksDiffer)) {
			continue
		}
		if !s.fresh {
			s.last, s.fresh = i.Sequence-1, true
		}
		i.refuse(errForgotten)
	}
	return nil
}
