package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/records"
)

const (
	walkPage    = 2000        // rows of one step of a walk
	forgetPage  = 10_000      // changes that are removed at a time
	walkWorkers = 3           // pages that are compared at the same time
	tellEvery   = time.Second // for what sidecars hear during a walk of records that are too many to be told one by one
)

// walk makes everything in Redis what the database has, and forgets old changes. Rules come first, then blocks, then the rest. Changes are
// fed beside it. Where Redis is empty it is not asked: what it has all the same is mended by the next walk.
func (p *Publisher) walk(ctx context.Context, s database.Session, empty bool) error {
	began, before := time.Now(), p.mended.Load()
	err := p.turns.change(nil, func() error { return p.publish(ctx, s) })
	if err != nil {
		return err
	}
	w := &walker{Publisher: p, empty: empty}
	for _, read := range walks(source{s, p.unfit.note}) {
		err = w.table(ctx, read)
		if err != nil {
			return err
		}
	}
	err = forgetChanges(ctx, s)
	if err != nil {
		return fmt.Errorf("forget old changes: %w", err)
	}
	if mended := p.mended.Load() - before; mended > 0 {
		p.cfg.Log.Info("mended what Redis did not have", "records", mended, "took", time.Since(began).Round(time.Millisecond).String())
	}
	return nil
}

// forgetChanges removes changes that were fed a while ago, some at a time: a load may have left millions.
func forgetChanges(ctx context.Context, s database.Session) error {
	for {
		gone, err := s.Exec(ctx, `DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE done_at < $1 LIMIT $2)`, time.Now().Add(-keepOutbox), forgetPage)
		if err != nil || gone.RowsAffected() < forgetPage {
			return err
		}
	}
}

// walker is one walk.
type walker struct {
	*Publisher
	empty bool // Redis has lost everything
}

// table makes the records of a table what they have to be: while one page is read, those before it are compared and written. What is changed from
// now on is left out of all pages.
func (w *walker) table(ctx context.Context, read pages) (err error) {
	began := w.turns.begin()
	defer w.turns.end(began)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan []records.Wanted)
	var workers sync.WaitGroup
	for range walkWorkers {
		workers.Go(func() {
			for page := range ready {
				wrong := w.compare(inner, began, page)
				if wrong != nil {
					cancel(wrong)
				}
			}
		})
	}
	for page, wrong := range read(inner) {
		if wrong != nil {
			err = fmt.Errorf("walk through the database: %w", wrong)
			break
		}
		ready <- page
	}
	close(ready)
	workers.Wait()
	if context.Cause(inner) != nil {
		err = context.Cause(inner)
	}
	wrong := w.tell(context.WithoutCancel(ctx), 0) // what was written until an error, too
	if err == nil {
		err = wrong
	}
	return err
}

// compare compares a page with Redis, and writes what differs.
func (w *walker) compare(ctx context.Context, began uint64, page []records.Wanted) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var found []*records.Difference
	var err error
	if w.empty {
		found, err = w.Book.Absent(page)
	} else {
		found, err = w.Book.Compare(ctx, page)
	}
	if err != nil || len(found) == 0 {
		return err
	}
	w.compared()
	err = w.turns.write(began, found, func(found []*records.Difference) error {
		untold, err := w.Book.Write(ctx, found)
		w.untold.add(untold)
		if err == nil {
			w.mended.Add(int64(len(found)))
		}
		return err
	})
	if err != nil {
		return err
	}
	return w.tell(ctx, tellEvery)
}

// tell lets the sidecars know of what was written, unless they heard so lately.
func (w *walker) tell(ctx context.Context, every time.Duration) error {
	classes := w.untold.take(every)
	err := w.Book.TellAll(ctx, classes)
	if err != nil {
		w.untold.add(classes)
	}
	return err
}

// untold is the classes of records that were written, and that sidecars have not heard of.
type untold struct {
	mu      sync.Mutex // guards all below
	classes map[string]bool
	told    time.Time
}

func (u *untold) add(classes []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, class := range classes {
		u.classes[class] = true
	}
}

// take returns them and forgets them, unless it did so lately.
func (u *untold) take(every time.Duration) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.classes) == 0 || time.Since(u.told) < every {
		return nil
	}
	classes := slices.Collect(maps.Keys(u.classes))
	clear(u.classes)
	u.told = time.Now()
	return classes
}
