package database

import (
	"context"
	"time"
)

// Entry is one line of the audit.
type Entry struct {
	ID      int64          `json:"id"`
	At      time.Time      `json:"at"`
	Who     string         `json:"who"`
	Address string         `json:"address"`
	Action  string         `json:"action"`
	Domain  string         `json:"domain"`
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Before  map[string]any `json:"before"` // null: there was nothing
	After   map[string]any `json:"after"`  // null: there is nothing
}

// Audit is the lines about a subject, the newest first, with ids below before; 0: from the newest on. Empty fields of
// the subject match all, but for lines of domains that are not among some, nil for all. It does not show digests of
// keys.
func (d *DB) Audit(ctx context.Context, domains []string, about Subject, before int64, count int) ([]Entry, error) {
	return Many[Entry](ctx, d.reads, `SELECT id, at, who, address, action, domain, kind, name,
	    before - 'digest' AS before, after - 'digest' AS after FROM audit
	  WHERE ($1 = '' OR domain = $1) AND ($2 = '' OR kind = $2) AND ($3 = '' OR name = $3)
	    AND ($4::bigint = 0 OR id < $4) AND ($6::text[] IS NULL OR domain = ANY ($6))
	  ORDER BY id DESC LIMIT $5`, about.Domain, about.Kind, about.Name, before, count, domains)
}
