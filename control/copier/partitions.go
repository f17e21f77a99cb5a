package copier

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// partitioned are the tables with a partition for each month.
var partitioned = []string{"events", "usage_minutes", "endpoint_minutes"}

// The months from this one for which there are partitions. No row is stored from before the first: when moves it.
const (
	monthsBack  = 1
	monthsAhead = 2
	remakeAfter = time.Minute // after a failure
)

// keepMinutes is how long tables of minutes stay: tables of hours have the same sums.
const keepMinutes = 90 * 24 * time.Hour

// makePartitions makes the partitions of this month, of the one before and of the next two, once in a month. There is
// no default partition: it would take the rows of a month whose partition is late. After a failure it waits, so that
// the copy continues with the partitions that exist.
func (c *Copier) makePartitions(ctx context.Context, conn *pgx.Conn) error {
	now := c.now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if c.made.Equal(month) || now.Before(c.makeAt) {
		return nil
	}
	err := makeMonths(ctx, conn, month)
	if err == nil {
		err = forgetMinutes(ctx, conn, now.Add(-keepMinutes))
	}
	if err != nil {
		c.makeAt = now.Add(remakeAfter)
		return fmt.Errorf("make partitions: %w", err)
	}
	c.made = month
	return nil
}

// makeMonths makes the partitions around a month.
func makeMonths(ctx context.Context, conn *pgx.Conn, month time.Time) error {
	for _, table := range partitioned {
		for n := -monthsBack; n <= monthsAhead; n++ {
			err := makePartition(ctx, conn, table, month.AddDate(0, n, 0))
			if err != nil {
				return fmt.Errorf("%s: %w", partition(table, month.AddDate(0, n, 0)), err)
			}
		}
	}
	return nil
}

// partition is the name of a month's partition.
func partition(table string, month time.Time) string { return table + month.Format("_2006_01") }

// makePartition makes a partition that does not exist. It is attached after it is made, because that lets others read
// and write the table meanwhile.
func makePartition(ctx context.Context, conn *pgx.Conn, table string, month time.Time) error {
	name := partition(table, month)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&there)
		if err != nil || there {
			return err
		}
		_, err = tx.Exec(ctx,
			`CREATE TABLE `+name+` (LIKE `+table+` INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)`)
		if err == nil {
			_, err = tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`,
				table, name, month.Format(time.RFC3339), month.AddDate(0, 1, 0).Format(time.RFC3339)))
		}
		return err
	})
}

// forgetMinutes removes what the tables of minutes hold from before a time; of those with partitions whole months.
func forgetMinutes(ctx context.Context, conn *pgx.Conn, before time.Time) error {
	_, err := conn.Exec(ctx, `DELETE FROM cache_minutes WHERE at < $1`, before)
	if err != nil {
		return err
	}
	for _, table := range []string{"usage_minutes", "endpoint_minutes"} {
		err = dropMonths(ctx, conn, table, before)
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return nil
}

// dropMonths drops the partitions of a table that end before a time.
func dropMonths(ctx context.Context, conn *pgx.Conn, table string, before time.Time) error {
	rows, err := conn.Query(ctx, `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass($1)`,
		table)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	last := partition(table, before)
	for _, name := range names {
		if name < last { // the names of months are in the order of time
			_, err = conn.Exec(ctx, `DROP TABLE `+name)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
