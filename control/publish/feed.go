package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/records"
)

// outboxRow is one change.
type outboxRow struct {
	ID                 int64
	Domain, Kind, Name string
}

// feed puts changes into Redis until there are none left. A change that could not be put there stays for the next time.
func (p *Publisher) feed(ctx context.Context, s database.Session) error {
	for ctx.Err() == nil {
		open, err := database.Many[outboxRow](ctx, s, `SELECT id, domain, kind, name FROM outbox WHERE done_at IS NULL AND kind <> $2 ORDER BY id LIMIT $1`, feedPage, database.KindLoad)
		if err != nil {
			return fmt.Errorf("read what has changed: %w", err)
		}
		if len(open) == 0 {
			return nil
		}
		err = p.feedPage(ctx, s, open)
		p.unsure = err != nil
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// feedPage puts some changes into Redis, and notes that they are there.
func (p *Publisher) feedPage(ctx context.Context, s database.Session, open []outboxRow) error {
	var subjects []database.Subject
	var ids []int64
	published := false
	for _, row := range open {
		ids = append(ids, row.ID)
		subjects = append(subjects, database.Subject{row.Domain, row.Kind, row.Name})
		published = published || row.Kind == database.KindRules
	}
	var err error
	if published {
		err = p.turns.change(nil, func() error { return p.publish(ctx, s) })
	}
	if err == nil {
		_, err = p.Mend(ctx, s, subjects, true)
	}
	if err == nil && p.unsure {
		err = p.tellAbout(ctx, subjects)
	}
	if err == nil {
		err = done(ctx, s, ids)
	}
	return err
}

// tellAbout lets sidecars know of changes that are in Redis, and of which they may not have heard.
func (p *Publisher) tellAbout(ctx context.Context, subjects []database.Subject) error {
	return p.Book.TellAbout(ctx, identitiesOf(subjects))
}

// identitiesOf are the subjects that may have records.
func identitiesOf(subjects []database.Subject) (ids []records.Identity) {
	for _, s := range subjects {
		if id, err := IdentityOf(s); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Mend makes the records of some identities what the database has, before all pages of a walk that wait. Records that the database does not have
// are deleted, if that is asked for. It returns how many were not what they have to be.
func (p *Publisher) Mend(ctx context.Context, q database.Querier, subjects []database.Subject, deletes bool) (mended int, err error) {
	err = p.turns.change(identitiesOf(subjects), func() error {
		all, err := wanted(ctx, source{q, p.unfit.note}, subjects, time.Now())
		if err != nil {
			return fmt.Errorf("read records from the database: %w", err)
		}
		if !deletes {
			all = slices.DeleteFunc(all, func(w records.Wanted) bool { return w.Record == nil })
		}
		mended, err = p.Book.Mend(ctx, all)
		p.mended.Add(int64(mended))
		return err
	})
	return mended, err
}

// done notes rows of the outbox that are in Redis.
func done(ctx context.Context, s database.Session, ids []int64) error {
	_, err := s.Exec(ctx, `UPDATE outbox SET done_at = now() WHERE id = ANY ($1)`, ids)
	if err != nil {
		return fmt.Errorf("note what is done: %w", err)
	}
	return nil
}

// loads are the rows of the outbox about loads of users that are not in Redis yet.
func (p *Publisher) loads(ctx context.Context) ([]int64, error) {
	open, err := database.Many[outboxRow](ctx, p.cfg.Database.Changes, `SELECT id, domain, kind, name FROM outbox WHERE done_at IS NULL AND kind = $1`, database.KindLoad)
	if err != nil {
		return nil, fmt.Errorf("read what was loaded: %w", err)
	}
	var ids []int64
	for _, row := range open {
		ids = append(ids, row.ID)
	}
	return ids, nil
}
