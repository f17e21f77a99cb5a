package copier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/descriptors"
)

// countUsers counts in users what their usage says.
func countUsers(ctx context.Context, tx pgx.Tx, minutes ledger) error {
	found := requestsOf(minutes)
	if len(found) == 0 {
		return nil
	}
	c := newColumns(4)
	for name, n := range found {
		c.add(name[0], name[1], time.Unix(n.last, 0), n.exceeded)
	}
	// They are locked in the order of a load of users: else each of the two could wait for the other.
	_, err := tx.Exec(ctx, `SELECT FROM users AS t JOIN unnest($1::text[], $2::text[]) AS s (domain, identity) ON t.domain = s.domain AND t.identity = s.identity
	  ORDER BY t.domain, t.name FOR NO KEY UPDATE OF t`, c.lists()[:2]...)
	if err != nil {
		return fmt.Errorf("lock users: %w", err)
	}
	_, err = tx.Exec(ctx, `UPDATE users AS t SET last_request_at = greatest(t.last_request_at, s.at), exceeded_count = t.exceeded_count + s.exceeded
	  FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[]) AS s (domain, identity, at, exceeded) WHERE t.domain = s.domain AND t.identity = s.identity`, c.lists()...)
	if err != nil {
		return fmt.Errorf("count requests of users: %w", err)
	}
	return nil
}

// counted is what a user asked for.
type counted struct{ last, exceeded int64 }

// requestsOf adds up what usage says of each user, by domain and name. Only the rule "" counts whole requests.
func requestsOf(minutes ledger) map[[2]string]*counted {
	found := map[[2]string]*counted{}
	for k, s := range minutes {
		if k.rule != "" || k.subject == "" || s.first == 0 {
			continue
		}
		name := [2]string{k.domain, k.subject}
		if found[name] == nil {
			found[name] = &counted{}
		}
		n := found[name]
		n.last = max(n.last, k.at)
		if k.outcome == exceeds {
			n.exceeded += s.first
		}
	}
	return found
}

// exceeds is the outcome of a request that a limit refused.
const exceeds = "refused"

// nameAll gives the users and API keys that are new the names that the record has for them; all, where KEY_SECRET has changed.
func (r *Recorder) nameAll(ctx context.Context, conn *pgx.Conn) error {
	fingerprint := r.cfg.Keys.Identity("fingerprint", "spillway")
	var known string
	err := conn.QueryRow(ctx, `SELECT fingerprint FROM record_names`).Scan(&known)
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		err = errors.Join(nameUsers(ctx, conn, r.cfg.Keys, known != fingerprint), nameKeys(ctx, conn, r.cfg.Keys, known != fingerprint))
	}
	if err == nil && known != fingerprint {
		_, err = conn.Exec(ctx, `INSERT INTO record_names (fingerprint) VALUES ($1) ON CONFLICT (one) DO UPDATE SET fingerprint = excluded.fingerprint`, fingerprint)
	}
	if err != nil {
		return fmt.Errorf("name users and API keys in the record: %w", err)
	}
	return nil
}

// nameUsers names the users that have no name, or all.
func nameUsers(ctx context.Context, conn *pgx.Conn, keys descriptors.RecordKeys, all bool) error {
	where := `identity IS NULL AND `
	if all {
		where = ""
	}
	domain, name := "", ""
	for {
		rows, err := conn.Query(ctx, `SELECT domain, name FROM users WHERE `+where+`(domain, name) > ($1, $2) ORDER BY domain, name LIMIT $3`, domain, name, namePage)
		if err != nil {
			return err
		}
		c, n := newColumns(3), 0
		_, err = pgx.ForEachRow(rows, []any{&domain, &name}, func() error {
			n++
			c.add(domain, name, keys.Identity("user", name))
			return nil
		})
		if err != nil || n == 0 {
			return err
		}
		_, err = conn.Exec(ctx, `UPDATE users AS t SET identity = u.i FROM unnest($1::text[], $2::text[], $3::text[]) AS u (d, n, i) WHERE t.domain = u.d AND t.name = u.n`, c.lists()...)
		if err != nil || n < namePage {
			return err
		}
	}
}
