package copier

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/journal"
)

// countKeys adds to API keys what sidecars have counted of them. A key that no row of the database has is one of a rule file.
func (r *Recorder) countKeys(ctx context.Context, tx pgx.Tx, minutes ledger) error {
	if len(minutes) == 0 {
		return nil
	}
	err := nameKeys(ctx, tx, r.cfg.Keys, false) // one may be so new that its first requests come before its name
	if err != nil {
		return fmt.Errorf("name API keys in the record: %w", err)
	}
	totals := ledger{}
	for k, s := range minutes {
		t := totals.at(usageKey{domain: k.domain, subject: k.subject})
		t.first, t.second, t.last = t.first+s.first, t.second+s.second, max(t.last, k.at)
	}
	c := newColumns(5)
	for _, k := range totals.sorted() {
		t := totals[k]
		c.add(k.domain, k.subject, time.Unix(t.last, 0), t.first, t.second)
	}
	for _, named := range []string{"counted_id", "counted_key"} { // a mesh sends the id of a key or the key: two statements, as each may add to the same row
		_, err = tx.Exec(ctx, `UPDATE api_keys AS t SET last_used_at = greatest(t.last_used_at, s.at), total_requests = t.total_requests + s.requests, refused_requests = t.refused_requests + s.refused
		  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[]) AS s (domain, name, at, requests, refused) WHERE t.domain = s.domain AND t.`+named+` = s.name`, c.lists()...)
		if err != nil {
			return fmt.Errorf("count requests of API keys: %w", err)
		}
	}
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// nameKeys names the API keys that have no name, or all. Each has two: of its id and of the key itself.
func nameKeys(ctx context.Context, db querier, keys descriptors.RecordKeys, all bool) error {
	where := `counted_id IS NULL AND `
	if all {
		where = ""
	}
	domain, id := "", ""
	for {
		rows, err := db.Query(ctx, `SELECT domain, id, digest FROM api_keys WHERE `+where+`(domain, id) > ($1, $2) ORDER BY domain, id LIMIT $3`, domain, id, namePage)
		if err != nil {
			return err
		}
		c, n := newColumns(4), 0
		var digest []byte
		_, err = pgx.ForEachRow(rows, []any{&domain, &id, &digest}, func() error {
			n++
			c.add(domain, id, keys.Identity(journal.KeyKind, journal.KeyOf(id)), keys.Identity(journal.KeyKind, journal.KeyOfDigest(digest)))
			return nil
		})
		if err != nil || n == 0 {
			return err
		}
		_, err = db.Exec(ctx, `UPDATE api_keys AS t SET counted_id = u.n, counted_key = u.k FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u (d, i, n, k)
		  WHERE t.domain = u.d AND t.id = u.i`, c.lists()...)
		if err != nil || n < namePage {
			return err
		}
	}
}
