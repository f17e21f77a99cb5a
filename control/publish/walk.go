package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/profiles"
)

const (
	walkPage    = 2000        // profiles of one step of a walk
	walkWorkers = 3           // pages that are compared at the same time
	tellEvery   = time.Second // for what is announced during a walk
	deletedFor  = `interval '7 days'`
)

// walk makes everything in Redis what the database has: first the rules, then blocks, then API keys, then users, and
// then what was deleted in the last days. Changes are fed beside it. A page is what the database had when its statement
// began: what Redis has not it may add, for what was removed since is kept out for an hour, and of what differs
// Reconcile reads the newest.
func (p *Publisher) walk(ctx context.Context, q database.Querier) error {
	began, before := time.Now(), p.mended.Load()
	err := p.publish(ctx, p.unannounced)
	if err != nil {
		return err
	}
	w := &walker{Publisher: p, classes: map[string]bool{}}
	for _, sql := range []string{
		profileRows + `WHERE p.blocked`, keyRows, profileRows + `WHERE p.kind = 'user'`,
	} {
		err = w.table(ctx, func(add func(*row) error) error { return eachRow(ctx, q, sql, nil, add) })
		if err != nil {
			return err
		}
	}
	err = w.deleted(ctx, q)
	if err != nil {
		return err
	}
	if mended := p.mended.Load() - before; mended > 0 {
		p.cfg.Log.Info("mended what Redis did not have", "profiles", mended,
			"took", time.Since(began).Round(time.Millisecond).String())
	}
	return nil
}

// walker is one walk.
type walker struct {
	*Publisher
	mu        sync.Mutex // guards classes and announced
	classes   map[string]bool
	announced time.Time
}

// table makes the profiles of a table what they have to be: while one page is read, those before it are compared.
func (w *walker) table(ctx context.Context, read func(func(*row) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan []desired)
	workers := w.workers(ctx, cancel, ready)
	now, page := time.Now(), []desired(nil)
	err := read(func(r *row) error {
		page = w.desired(page, r, now)
		if len(page) < walkPage {
			return nil
		}
		ready <- page
		page = nil
		if ctx.Err() != nil {
			return errEnough
		}
		return nil
	})
	if len(page) > 0 {
		ready <- page
	}
	close(ready)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		err = fmt.Errorf("walk through the database: %w", err)
	}
	return errors.Join(err, w.announce(context.WithoutCancel(ctx), 0)) // what was written until an error, too
}

// workers compare pages until there are no more. An error ends the walk.
func (w *walker) workers(ctx context.Context, end context.CancelCauseFunc, ready <-chan []desired) *sync.WaitGroup {
	all := new(sync.WaitGroup)
	for range walkWorkers {
		all.Go(func() {
			for page := range ready {
				if ctx.Err() != nil {
					continue
				}
				err := w.page(ctx, page)
				if err != nil {
					end(err)
				}
			}
		})
	}
	return all
}

// page makes Redis what a page has.
func (w *walker) page(ctx context.Context, page []desired) error {
	ids := make([]profiles.Identity, len(page))
	for i := range page {
		ids[i] = page[i].identity
	}
	had, err := w.profiles.Read(ctx, ids)
	if err != nil {
		return err
	}
	var absent []profiles.Swap
	var differ []database.Subject
	var written []profiles.Identity
	for i := range page {
		s := profiles.Swap{Identity: ids[i], Was: had[i], Profile: page[i].profile}
		switch {
		case s.Was == "" && s.Profile != nil:
			absent, written = append(absent, s), append(written, ids[i])
		case s.Merge():
			differ, written = append(differ, page[i].Subject), append(written, ids[i])
		}
	}
	if len(written) == 0 {
		return nil
	}
	w.passed("compared")
	w.note(written)
	added, err := w.profiles.Add(ctx, absent)
	w.mended.Add(int64(added))
	if err == nil {
		_, err = w.Reconcile(ctx, w.cfg.Database.Tasks, differ)
	}
	if err != nil {
		return err
	}
	return w.announce(ctx, tellEvery)
}

// deleted removes what was deleted in the last days, and is in Redis all the same.
func (w *walker) deleted(ctx context.Context, q database.Querier) error {
	lines, err := database.Many[line](ctx, q, `SELECT DISTINCT 0::bigint AS id, domain, kind, name,
	  before->>'digest' AS digest FROM audit
	  WHERE after IS NULL AND before IS NOT NULL AND at > now() - `+deletedFor+` AND kind <> 'tier'`)
	if err != nil {
		return fmt.Errorf("read what was deleted: %w", err)
	}
	var all []database.Subject
	for _, l := range lines {
		all = append(all, l.subjects()...)
	}
	for some := range slices.Chunk(all, walkPage) {
		page, err := w.desiredOf(ctx, q, some)
		if err == nil {
			err = w.page(ctx, page)
		}
		if err != nil {
			return err
		}
	}
	return w.announce(ctx, 0)
}

// note remembers which classes of profiles are written.
func (w *walker) note(ids []profiles.Identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, class := range profiles.ClassesOf(ids) {
		w.classes[class] = true
	}
}

// announce announces the classes of profiles that were written, unless that was done lately.
func (w *walker) announce(ctx context.Context, every time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.classes) == 0 || time.Since(w.announced) < every {
		return nil
	}
	for class := range w.classes {
		err := w.profiles.AnnounceClasses(ctx, []string{class})
		if err != nil {
			return err
		}
		delete(w.classes, class)
	}
	w.announced = time.Now()
	return nil
}
