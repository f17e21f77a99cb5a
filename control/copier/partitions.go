package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// partitioned is a table with partitions by time.
type partitioned struct {
	name   string
	yearly bool // a partition for each year, else for each month
	fill   int  // of its pages, in percent; 0: all, because rows are not changed
}

// partitions are the tables with partitions.
var partitions = []partitioned{
	{name: "events"}, {name: "usage_minutes"}, {name: "tenant_minutes"}, {name: "endpoint_minutes"},
	{name: "usage_hours", fill: 80}, {name: "tenant_hours", fill: 80}, {name: "endpoint_hours", fill: 80},
	{name: "call_hours", fill: 80}, {name: "identity_hours", fill: 80},
	{name: "usage_days", yearly: true, fill: 80}, {name: "tenant_days", yearly: true, fill: 80},
	{name: "endpoint_days", yearly: true, fill: 80},
}

// The months from this one for which there are partitions. No row is stored from before the first: when moves it.
const (
	monthsBack  = 1
	monthsAhead = 2
	remakeAfter = time.Minute // after a failure
)

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
	if err != nil {
		c.makeAt = now.Add(remakeAfter)
		return fmt.Errorf("make partitions: %w", err)
	}
	c.made = month
	return nil
}

// makeMonths makes the partitions around a month.
func makeMonths(ctx context.Context, conn *pgx.Conn, month time.Time) error {
	for _, t := range partitions {
		for n := -monthsBack; n <= monthsAhead; n++ {
			err := t.make(ctx, conn, month.AddDate(0, n, 0))
			if err != nil {
				return fmt.Errorf("%s: %w", t.partition(month.AddDate(0, n, 0)), err)
			}
		}
	}
	return nil
}

// partition is the name of the partition that has a time. The names of a table are in the order of time.
func (t *partitioned) partition(at time.Time) string {
	if t.yearly {
		return t.name + at.Format("_2006")
	}
	return t.name + at.Format("_2006_01")
}

// step is the step of time that ends the name, of usage; else nothing.
func (t *partitioned) step() string {
	_, step, _ := strings.Cut(t.name, "_")
	return step
}

// span is from when to when the partition is that has a month.
func (t *partitioned) span(month time.Time) (from, to time.Time) {
	if t.yearly {
		from = time.Date(month.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
		return from, from.AddDate(1, 0, 0)
	}
	return month, month.AddDate(0, 1, 0)
}

// make makes the partition of a month, where it does not exist. It is attached after it is made, because that lets
// others read and write the table meanwhile.
func (t *partitioned) make(ctx context.Context, conn *pgx.Conn, month time.Time) error {
	name := t.partition(month)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&there)
		if err != nil || there {
			return err
		}
		sql := `CREATE TABLE ` + name + ` (LIKE ` + t.name + ` INCLUDING DEFAULTS INCLUDING CONSTRAINTS
		  INCLUDING INDEXES)`
		if t.fill > 0 {
			sql += fmt.Sprintf(` WITH (fillfactor = %d)`, t.fill)
		}
		_, err = tx.Exec(ctx, sql)
		if err == nil {
			from, to := t.span(month)
			_, err = tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`,
				t.name, name, from.Format(time.RFC3339), to.Format(time.RFC3339)))
		}
		return err
	})
}

// drop drops the partitions that end before a time. It waits a moment for those who read the table, and not more: all
// others would wait behind it.
func (t *partitioned) drop(ctx context.Context, conn *pgx.Conn, before time.Time) error {
	rows, err := conn.Query(ctx, `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass($1)`,
		t.name)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if name >= t.partition(before) {
			break
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`)
			if err == nil {
				_, err = tx.Exec(ctx, `DROP TABLE `+name)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
	}
	return nil
}
