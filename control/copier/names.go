package copier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
)

const (
	namePage = 5000      // users or keys that are named together
	exceeds  = "refused" // outcome of a request that a limit refused
)

// named is a table whose rows get the names that rows of usage have for them.
type named struct {
	missing, list, update string
	names                 func(k keys.Names, name string, digest []byte) (first, second string)
}

var namedUsers = named{
	missing: `identity IS NULL AND `,
	list: `SELECT domain, name, NULL::bytea FROM users WHERE %s (domain, name) > ($1, $2) ORDER BY domain, name
	  LIMIT $3`,
	// The kind comes with the names: with a constant, and before the table was analyzed, PostgreSQL scans all users for
	// each name.
	update: `UPDATE profiles AS t SET identity = u.i
	  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u (d, n, i, k)
	  WHERE t.domain = u.d AND t.kind = u.k AND t.name = u.n`,
	names: func(k keys.Names, name string, _ []byte) (string, string) {
		return k.Identity("user", name), "user"
	},
}

// A key has two names, one of its id and one of the key itself: a mesh sends either.
var namedKeys = named{
	missing: `counted_id IS NULL AND `,
	list:    `SELECT domain, id, digest FROM api_keys WHERE %s (domain, id) > ($1, $2) ORDER BY domain, id LIMIT $3`,
	update: `UPDATE api_keys AS t SET counted_id = u.n, counted_key = u.k
	  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u (d, i, n, k) WHERE t.domain = u.d AND t.id =
	  u.i`,
	names: func(k keys.Names, id string, digest []byte) (string, string) {
		return k.Identity(journal.KeyKind, journal.KeyOf(id)), k.Identity(journal.KeyKind,
			journal.KeyOfDigest(digest))
	},
}

// give names the rows without a name, or all.
func (t *named) give(ctx context.Context, db executor, k keys.Names, all bool) error {
	where := t.missing
	if all {
		where = ""
	}
	domain, name := "", ""
	for {
		rows, err := db.Query(ctx, fmt.Sprintf(t.list, where), domain, name, namePage)
		if err != nil {
			return err
		}
		var page columns
		var digest []byte
		_, err = pgx.ForEachRow(rows, []any{&domain, &name, &digest}, func() error {
			first, second := t.names(k, name, digest)
			page.append(domain, name, first, second)
			return nil
		})
		if err == nil {
			err = page.exec(ctx, db, t.update)
		}
		if err != nil || page == nil || len(page[0]) < namePage {
			return err
		}
	}
}

// nameAll names the users and API keys that are new; all, where KEY_SECRET has changed.
func (c *Copier) nameAll(ctx context.Context, conn *pgx.Conn) error {
	fingerprint := c.cfg.Keys.Identity("fingerprint", "spillway")
	var known string
	err := conn.QueryRow(ctx, `SELECT fingerprint FROM record_names`).Scan(&known)
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		all := known != fingerprint
		err = errors.Join(namedUsers.give(ctx, conn, c.cfg.Keys, all), namedKeys.give(ctx, conn, c.cfg.Keys, all))
	}
	if err == nil && known != fingerprint {
		_, err = conn.Exec(ctx, `INSERT INTO record_names (fingerprint) VALUES ($1)
		  ON CONFLICT (one) DO UPDATE SET fingerprint = excluded.fingerprint`, fingerprint)
	}
	if err != nil {
		return fmt.Errorf("name users and API keys as the journal does: %w", err)
	}
	return nil
}

// keyIDs returns what the table of events has of the API keys that events name, by domain and name: the id, and of a
// key that the database does not have the name.
func (c *Copier) keyIDs(ctx context.Context, tx pgx.Tx, items []*item) (map[[2]string]string, error) {
	var rows columns
	ids := map[[2]string]string{}
	for _, i := range items {
		for n := range i.rows.Events {
			e := &i.rows.Events[n]
			key := [2]string{e.Domain, e.APIKey}
			if _, known := ids[key]; !known && e.APIKey != "" {
				ids[key] = e.APIKey
				rows.append(e.Domain, e.APIKey)
			}
		}
	}
	if rows == nil {
		return ids, nil
	}
	err := namedKeys.give(ctx, tx, c.cfg.Keys, false)
	if err != nil {
		return nil, fmt.Errorf("name API keys as the journal does: %w", err)
	}
	found, err := tx.Query(ctx, `SELECT domain, u.name, id FROM unnest($1::text[], $2::text[]) AS u (domain, name)
	  JOIN api_keys AS t USING (domain) WHERE t.counted_id = u.name OR t.counted_key = u.name`, rows[0], rows[1])
	if err != nil {
		return nil, fmt.Errorf("find the API keys of events: %w", err)
	}
	var domain, name, id string
	_, err = pgx.ForEachRow(found, []any{&domain, &name, &id}, func() error {
		ids[[2]string{domain, name}] = id
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the API keys of events: %w", err)
	}
	return ids, nil
}

// countUsers counts in users what their usage shows. The rule "" counts whole requests.
func countUsers(ctx context.Context, tx pgx.Tx, minutes ledger) error {
	var rows columns
	for k, s := range minutes {
		if k.rule != "" || k.name == "" || s.count == 0 {
			continue
		}
		exceeded := int64(0)
		if k.outcome == exceeds {
			exceeded = s.count
		}
		rows.append(k.domain, k.name, time.Unix(k.at, 0), exceeded)
	}
	// They are locked in the order of a load of users: else each of the two could wait for the other.
	err := rows.exec(ctx, tx, `WITH counted AS (
	    SELECT domain, identity, max(at) AS at, sum(exceeded) AS exceeded
	    FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[]) AS u (domain, identity, at, exceeded)
	    GROUP BY 1, 2
	  ), locked AS MATERIALIZED (
	    SELECT t.domain, t.kind, t.name, s.at, s.exceeded FROM profiles AS t JOIN counted AS s USING (domain, identity)
	    WHERE s.exceeded > 0 OR t.last_request_at IS NULL OR t.last_request_at < s.at
	    ORDER BY t.domain, t.name FOR NO KEY UPDATE OF t
	  )
	  UPDATE profiles AS t SET last_request_at = greatest(t.last_request_at, s.at),
	    exceeded_count = t.exceeded_count + s.exceeded
	  FROM locked AS s WHERE t.domain = s.domain AND t.kind = s.kind AND t.name = s.name`)
	if err != nil {
		return fmt.Errorf("count requests of users: %w", err)
	}
	return nil
}

// countKeys adds to API keys what sidecars have counted of them. A key that no row of the database has is one of a rule
// file.
func (c *Copier) countKeys(ctx context.Context, tx pgx.Tx, minutes ledger) error {
	var rows columns
	for k, s := range minutes {
		rows.append(k.domain, k.name, time.Unix(k.at, 0), s.count, s.amount)
	}
	if rows == nil {
		return nil
	}
	err := namedKeys.give(ctx, tx, c.cfg.Keys, false) // one may be so new that its first requests come before its name
	if err != nil {
		return fmt.Errorf("name API keys as the journal does: %w", err)
	}
	for _, name := range []string{"counted_id", "counted_key"} { // two statements, as each may add to the same row
		err = rows.exec(ctx, tx, `UPDATE api_keys AS t SET last_used_at = greatest(t.last_used_at, s.at),
		    total_requests = t.total_requests + s.requests, refused_requests = t.refused_requests + s.refused
		  FROM (SELECT domain, name, max(at) AS at, sum(requests) AS requests, sum(refused) AS refused
		    FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[])
		      AS u (domain, name, at, requests, refused) GROUP BY 1, 2) AS s
		  WHERE t.domain = s.domain AND t.`+name+` = s.name`)
		if err != nil {
			return fmt.Errorf("count requests of API keys: %w", err)
		}
	}
	return nil
}
