package control

import (
	"context"
	"fmt"
	"time"
)

// outboxRow is one change.
type outboxRow struct {
	ID                 int64
	Domain, Kind, Name string
}

// feed puts changes into Redis until there are none left. A change that could not be put there stays for the next time.
func (p *Publisher) feed(ctx context.Context) error {
	for ctx.Err() == nil {
		open, err := many[outboxRow](ctx, p.cfg.Database.pool, `SELECT id, domain, kind, name FROM outbox WHERE done_at IS NULL AND kind <> $2 ORDER BY id LIMIT $1`, feedPage, kindLoad)
		if err != nil {
			return fmt.Errorf("read what has changed: %w", err)
		}
		if len(open) == 0 {
			return nil
		}
		var subjects []Subject
		var ids []int64
		published := false
		for _, row := range open {
			ids = append(ids, row.ID)
			subjects = append(subjects, Subject{row.Domain, row.Kind, row.Name})
			published = published || row.Kind == kindRules
		}
		if published {
			err = p.publish(ctx)
		}
		if err == nil {
			err = p.mend(ctx, subjects)
		}
		if err != nil {
			return err
		}
		err = p.done(ctx, ids)
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// mend makes the records of some identities what the database has.
func (p *Publisher) mend(ctx context.Context, subjects []Subject) error {
	wanted, err := p.cfg.Database.wanted(ctx, subjects, time.Now())
	if err != nil {
		return fmt.Errorf("read records from the database: %w", err)
	}
	mended, err := p.book.Mend(ctx, wanted)
	p.mended.Add(int64(mended))
	return err
}

// walks are the statements that list all identities that have records, page by page: each row is behind the one that is given.
var walks = []string{
	`SELECT domain, 'user' AS kind, name FROM users WHERE (domain, name) > ($1, $2) ORDER BY domain, name LIMIT $3`,
	`SELECT domain, 'api_key' AS kind, id AS name FROM api_keys WHERE (domain, id) > ($1, $2) ORDER BY domain, id LIMIT $3`,
	`SELECT domain, 'secret' AS kind, encode(digest, 'hex') AS name FROM api_keys WHERE (domain, digest) > ($1, decode($2, 'hex')) ORDER BY domain, digest LIMIT $3`,
	`SELECT domain, 'tenant' AS kind, name FROM blocks WHERE kind = 'tenant' AND (domain, name) > ($1, $2) ORDER BY domain, name LIMIT $3`,
	`SELECT domain, 'api_key' AS kind, name FROM blocks WHERE kind = 'api_key' AND (domain, name) > ($1, $2) ORDER BY domain, name LIMIT $3`,
	`SELECT domain, 'ip' AS kind, name FROM blocks WHERE kind = 'ip' AND (domain, name) > ($1, $2) ORDER BY domain, name LIMIT $3`,
}

// walk makes everything in Redis what the database has, and forgets old changes.
func (p *Publisher) walk(ctx context.Context) error {
	began, before := time.Now(), p.mended.Load()
	err := p.publish(ctx)
	if err != nil {
		return err
	}
	for _, sql := range walks {
		err = p.walkTable(ctx, sql)
		if err != nil {
			return err
		}
	}
	err = p.walkDone(ctx)
	if err != nil {
		return err
	}
	_, err = p.cfg.Database.pool.Exec(ctx, `DELETE FROM outbox WHERE done_at < $1`, time.Now().Add(-keepOutbox))
	if err != nil {
		return fmt.Errorf("forget old changes: %w", err)
	}
	if mended := p.mended.Load() - before; mended > 0 {
		p.cfg.Log.Info("mended what Redis did not have", "records", mended, "took", time.Since(began).Round(time.Millisecond).String())
	}
	return nil
}

func (p *Publisher) walkTable(ctx context.Context, sql string) error {
	var last Subject
	for ctx.Err() == nil {
		page, err := many[Subject](ctx, p.cfg.Database.pool, sql, last.Domain, last.Name, walkPage)
		if err != nil {
			return fmt.Errorf("walk through the database: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		err = p.mend(ctx, page)
		if err != nil {
			return err
		}
		err = p.feed(ctx) // changes do not wait for the end of the walk
		if err != nil {
			return err
		}
		last = page[len(page)-1]
	}
	return ctx.Err()
}

// loads are the rows of the outbox about loads of users that are not in Redis yet.
func (p *Publisher) loads(ctx context.Context) ([]int64, error) {
	open, err := many[outboxRow](ctx, p.cfg.Database.pool, `SELECT id, domain, kind, name FROM outbox WHERE done_at IS NULL AND kind = $1`, kindLoad)
	if err != nil {
		return nil, fmt.Errorf("read what was loaded: %w", err)
	}
	var ids []int64
	for _, row := range open {
		ids = append(ids, row.ID)
	}
	return ids, nil
}

// done notes rows of the outbox that are in Redis.
func (p *Publisher) done(ctx context.Context, ids []int64) error {
	_, err := p.cfg.Database.pool.Exec(ctx, `UPDATE outbox SET done_at = now() WHERE id = ANY ($1)`, ids)
	if err != nil {
		return fmt.Errorf("note what is done: %w", err)
	}
	return nil
}

// walkDone looks at what changed in the last days, too: what was deleted is in no other table.
func (p *Publisher) walkDone(ctx context.Context) error {
	var last int64
	for ctx.Err() == nil {
		page, err := many[outboxRow](ctx, p.cfg.Database.pool, `SELECT id, domain, kind, name FROM outbox WHERE done_at IS NOT NULL AND id > $1 ORDER BY id LIMIT $2`, last, walkPage)
		if err != nil {
			return fmt.Errorf("walk through the changes: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		var subjects []Subject
		for _, row := range page {
			subjects = append(subjects, Subject{row.Domain, row.Kind, row.Name})
		}
		err = p.mend(ctx, subjects)
		if err != nil {
			return err
		}
		last = page[len(page)-1].ID
	}
	return ctx.Err()
}
