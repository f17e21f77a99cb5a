package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// Restored is what Restore loaded.
type Restored struct {
	Files int   `json:"files"`
	Rows  int64 `json:"rows"`
}

// Restore loads the files of some days into the table events_restored. What the table has of a day and region is
// replaced, so that it may be repeated. Each file is checked as it is read; a day with a file that differs is not
// loaded.
func (a *Archiver) Restore(ctx context.Context, days Days, progress func(Progress)) (done Restored, err error) {
	all, err := List(ctx, a.store, days)
	if err != nil {
		return done, err
	}
	var p Progress
	together := map[part][]*Manifest{}
	var order []part
	for i := range all {
		m := &all[i]
		day, err := time.Parse(dayLayout, m.Day)
		if err != nil {
			return done, &Mismatch{m.Path, "the manifest names no day"}
		}
		k := part{day, m.Region}
		if together[k] == nil {
			order = append(order, k)
		}
		together[k] = append(together[k], m)
		p.Of += m.Rows
	}
	for _, k := range order {
		progress(p)
		rows, err := a.restorePart(ctx, k, together[k])
		if err != nil {
			return done, fmt.Errorf("restore %s: %w", k.day.Format(dayLayout), err)
		}
		done.Files, done.Rows, p.Rows = done.Files+len(together[k]), done.Rows+rows, p.Rows+rows
	}
	progress(p)
	return done, nil
}

// restorePart loads the files of a day and region in one transaction.
func (a *Archiver) restorePart(ctx context.Context, k part, files []*Manifest) (total int64, err error) {
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx,
			`DELETE FROM events_restored WHERE region = $1 AND at >= $2 AND at < $2 + interval '24
			  hours'`, k.region, k.day)
		if err != nil {
			return err
		}
		for _, m := range files {
			rows, err := a.restoreFile(ctx, tx, m)
			if err != nil {
				return err
			}
			total += rows
		}
		return nil
	})
	return total, err
}

// errStopped ends the reading of a file where the database takes no more of its rows.
var errStopped = errors.New("stopped")

// restoreFile copies the rows of a file, and compares what it read with the manifest before the transaction may end.
func (a *Archiver) restoreFile(ctx context.Context, tx pgx.Tx, m *Manifest) (int64, error) {
	t := newTally()
	var read error
	next, stop := iter.Pull(func(yield func([]any) bool) {
		_, read = each(ctx, a.store, m.Path, nil, func(r *Row) error {
			t.include(r)
			if !yield(r.values()) {
				return errStopped
			}
			return nil
		})
	})
	copied, err := tx.CopyFrom(ctx, pgx.Identifier{"events_restored"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
		row, more := next()
		if !more {
			return nil, read
		}
		return row, nil
	}))
	stop()
	switch {
	case read != nil && !errors.Is(read, errStopped):
		return 0, read
	case err != nil:
		return 0, err
	case t.rows != m.Rows || t.checksum() != m.Checksum:
		return 0, &Mismatch{m.Path, "its rows are not those of its manifest"}
	}
	return copied, nil
}
