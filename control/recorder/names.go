package recorder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/descriptors"
)

// touch counts in users and API keys what their usage says. Only the rule "" counts whole requests.
func touch(ctx context.Context, tx pgx.Tx, minutes ledger) error {
	type counted struct {
		last               int64
		requests, exceeded int64
	}
	found := map[[2]string]*counted{}
	c := newColumns(5)
	for _, k := range minutes.sorted() {
		if k.rule != "" || k.subject == "" {
			continue
		}
		name := [2]string{k.domain, k.subject}
		if found[name] == nil {
			found[name] = &counted{}
		}
		n := found[name]
		n.last, n.requests = max(n.last, k.at), n.requests+minutes[k].first
		if k.outcome == exceeds {
			n.exceeded += minutes[k].first
		}
	}
	for name, n := range found {
		c.add(name[0], name[1], time.Unix(n.last, 0), n.requests, n.exceeded)
	}
	if len(found) == 0 {
		return nil
	}
	const counts = ` FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[]) AS s (domain, identity, at, requests, exceeded) WHERE t.domain = s.domain AND t.identity = s.identity`
	_, err := tx.Exec(ctx, `UPDATE users AS t SET last_request_at = greatest(t.last_request_at, s.at), exceeded_count = t.exceeded_count + s.exceeded`+counts, c.lists()...)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE api_keys AS t SET last_used_at = greatest(t.last_used_at, s.at), total_requests = t.total_requests + s.requests`+counts, c.lists()...)
	}
	if err != nil {
		return fmt.Errorf("count requests of users and API keys: %w", err)
	}
	return nil
}

// exceeds is the outcome of a request that a limit refused.
const exceeds = "refused"

// named is a table whose rows the record has names for.
type named struct{ kind, table, column string }

var namedTables = []named{{"user", "users", "name"}, {"api_key", "api_keys", "id"}}

// nameAll gives the users and API keys that are new the names that the record has for them; all of them, where KEY_SECRET has changed.
func (r *Recorder) nameAll(ctx context.Context, conn *pgx.Conn) error {
	fingerprint := r.cfg.Keys.Identity("fingerprint", "spillway")
	var known string
	err := conn.QueryRow(ctx, `SELECT fingerprint FROM record_names`).Scan(&known)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	for _, t := range namedTables {
		if err == nil {
			err = t.name(ctx, conn, r.cfg.Keys, known != fingerprint)
		}
	}
	if err == nil && known != fingerprint {
		_, err = conn.Exec(ctx, `INSERT INTO record_names (fingerprint) VALUES ($1) ON CONFLICT (one) DO UPDATE SET fingerprint = excluded.fingerprint`, fingerprint)
	}
	if err != nil {
		return fmt.Errorf("name users and API keys in the record: %w", err)
	}
	return nil
}

// name names the rows of a table that have no name, or all.
func (t named) name(ctx context.Context, conn *pgx.Conn, keys descriptors.RecordKeys, all bool) error {
	where := " identity IS NULL AND "
	if all {
		where = ""
	}
	domain, last := "", ""
	for {
		rows, err := conn.Query(ctx, `SELECT domain, `+t.column+` FROM `+t.table+` WHERE `+where+` (domain, `+t.column+`) > ($1, $2) ORDER BY domain, `+t.column+` LIMIT $3`, domain, last, namePage)
		if err != nil {
			return err
		}
		c, n := newColumns(3), 0
		_, err = pgx.ForEachRow(rows, []any{&domain, &last}, func() error {
			n++
			c.add(domain, last, keys.Identity(t.kind, last))
			return nil
		})
		if err != nil || n == 0 {
			return err
		}
		_, err = conn.Exec(ctx, `UPDATE `+t.table+` AS t SET identity = u.i FROM unnest($1::text[], $2::text[], $3::text[]) AS u (d, n, i) WHERE t.domain = u.d AND t.`+t.column+` = u.n`, c.lists()...)
		if err != nil || n < namePage {
			return err
		}
	}
}
