package copier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Keep is how long rows stay. All fields are required.
type Keep struct {
	Hours time.Duration // usage by hour, and latencies of identities; at least two months
	Days  time.Duration // usage by day
	Audit time.Duration // lines of the audit
}

// keepMinutes is how long tables of minutes stay: tables of hours have the same sums.
const keepMinutes = 90 * 24 * time.Hour

// auditLines is how many lines are forgotten together: who writes one waits no longer than that takes.
const auditLines = 5000

// of is how long the rows of a table of this step stay.
func (k *Keep) of(step string) time.Duration {
	return map[string]time.Duration{"minutes": keepMinutes, "hours": k.Hours, "days": k.Days}[step]
}

// forget removes what is older than it is kept, once an hour: of usage whole partitions, of the other tables, which are
// small, rows. Events are not its business: they go to the archive.
func (c *Copier) forget(ctx context.Context, conn *pgx.Conn) error {
	now := c.now().UTC()
	if now.Before(c.keepAt) {
		return nil
	}
	c.keepAt = now.Add(remakeAfter)
	var failed error
	for _, t := range partitions {
		if step := t.step(); step != "" {
			failed = errors.Join(failed, t.drop(ctx, conn, now.Add(-c.cfg.Keep.of(step))))
		}
	}
	for _, by := range steps {
		_, err := conn.Exec(ctx, `DELETE FROM cache_`+by.name+` WHERE at < $1`, now.Add(-c.cfg.Keep.of(by.name)))
		failed = errors.Join(failed, err)
	}
	failed = errors.Join(failed, forgetAudit(ctx, conn, now.Add(-c.cfg.Keep.Audit)))
	if failed != nil {
		return fmt.Errorf("forget what is older than it is kept: %w", failed)
	}
	c.keepAt = now.Add(forgetEvery)
	return nil
}

// forgetAudit removes lines of the audit from before a time, a few at once, which the order of their ids finds.
func forgetAudit(ctx context.Context, conn *pgx.Conn, before time.Time) error {
	for {
		gone := int64(0)
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT set_config('spillway.forgets', $1, true)`, before.Format(time.RFC3339))
			if err != nil {
				return err
			}
			done, err := tx.Exec(ctx, `DELETE FROM audit WHERE at < $1 AND done_at IS NOT NULL
			  AND id IN (SELECT id FROM audit ORDER BY id LIMIT $2)`, before.Truncate(time.Second), auditLines)
			gone = done.RowsAffected()
			return err
		})
		if err != nil || gone == 0 {
			return err
		}
	}
}
