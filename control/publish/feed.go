package publish

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spillway-mesh/spillway/control/database"
)

// line is one line of the audit that is not in Redis yet.
type line struct {
	ID                 int64
	Domain, Kind, Name string
	Digest             *string // of an API key, as PostgreSQL writes bytes
}

// Feed is a task: it puts changes into Redis until all are there. A change that could not be put there, or not be
// announced, stays for the next time.
func (p *Publisher) Feed(ctx context.Context, _ <-chan struct{}) error {
	for ctx.Err() == nil {
		open, err := database.Many[line](ctx, p.cfg.Database.Tasks, `SELECT id, domain, kind, name,
		  coalesce(after, before)->>'digest' AS digest FROM audit
		  WHERE done_at IS NULL AND NOT (kind = 'user' AND name = '') ORDER BY id LIMIT $1`, feedPage)
		if err != nil {
			return fmt.Errorf("read what has changed: %w", err)
		}
		if len(open) == 0 {
			if p.whole.Load() {
				p.setCurrent()
			}
			return nil
		}
		err = p.feedPage(ctx, open)
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// feedPage puts some changes into Redis, announces all of them, whether Redis had to be changed or not, and notes that
// they are done.
func (p *Publisher) feedPage(ctx context.Context, open []line) error {
	var subjects []database.Subject
	var ids []int64
	rules := false
	for _, l := range open {
		ids = append(ids, l.ID)
		subjects = append(subjects, l.subjects()...)
		rules = rules || l.Kind == "rules" || l.Kind == "tier"
	}
	if rules {
		err := p.publish(ctx, true)
		if err != nil {
			return err
		}
	}
	_, err := p.Reconcile(ctx, p.cfg.Database.Tasks, subjects)
	if err == nil {
		err = p.profiles.Announce(ctx, identitiesOf(subjects))
	}
	if err == nil {
		err = p.done(ctx, ids)
	}
	return err
}

// subjects are those whose profiles a line is about.
func (l *line) subjects() []database.Subject {
	switch l.Kind {
	case "rules", "tier":
		return nil
	case "key":
		all := []database.Subject{{Domain: l.Domain, Kind: "api_key", Name: l.Name}}
		if l.Digest != nil {
			all = append(all, database.Subject{
				Domain: l.Domain, Kind: database.KindSecret, Name: strings.TrimPrefix(*l.Digest, `\x`),
			})
		}
		return all
	}
	return []database.Subject{{Domain: l.Domain, Kind: l.Kind, Name: l.Name}}
}

// done notes lines that are in Redis.
func (p *Publisher) done(ctx context.Context, ids []int64) error {
	_, err := p.cfg.Database.Tasks.Exec(ctx, `UPDATE audit SET done_at = now() WHERE id = ANY ($1)`, ids)
	if err != nil {
		return fmt.Errorf("note what is done: %w", err)
	}
	return nil
}

// loads are the lines about loads of users that are not in Redis yet.
func (p *Publisher) loads(ctx context.Context) (ids []int64, err error) {
	open, err := database.Many[struct{ ID int64 }](ctx, p.cfg.Database.Tasks, `SELECT id FROM audit
	  WHERE done_at IS NULL AND kind = 'user' AND name = ''`)
	if err != nil {
		return nil, fmt.Errorf("read what was loaded: %w", err)
	}
	for _, l := range open {
		ids = append(ids, l.ID)
	}
	return ids, nil
}

// isDigest reports whether a text is a digest in hex.
func isDigest(text string) bool {
	bytes, err := hex.DecodeString(text)
	return err == nil && len(bytes) == 32 && strings.ToLower(text) == text
}
