package erase

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// erasable is rows of a table that are about a person. The parameters are @domain, @kind, @name, @keys (ids of API
// keys), @digests of them, @shown (the keys as events have them), @identities and @ips, both as usage and events have
// them, and @erasure.
type erasable struct {
	table  string
	where  string
	redact string // what to set instead of deleting; empty: the rows are deleted
}

// erasables are the tables that have to be named. Tables with the text columns `domain` and `identity` need not: they
// are found. A table that is not there is passed over.
var erasables = []erasable{
	{table: "api_keys", where: `domain = @domain AND id = ANY (@keys)`},
	{table: "profiles", where: `domain = @domain AND (kind = @kind AND name = @name
	  OR kind = 'api_key' AND name = ANY (@keys))`},
	{table: "audit", redact: `name = 'erasure ' || @erasure::bigint, before = NULL, done_at = coalesce(done_at, now()),
	  after = jsonb_build_object('erasure', @erasure::bigint)`,
		where: `domain = @domain AND (kind = @kind AND name = @name OR kind IN ('key', 'api_key') AND name = ANY (@keys)
		  OR kind = 'key' AND @kind = 'user' AND (before->>'user_name' = @name OR after->>'user_name' = @name))`},
}

// tables are the tables that there are, with those that are found by their columns.
func (x *Eraser) tables(ctx context.Context, p *person) ([]place, error) {
	rows, err := x.Database.Tasks.Query(ctx, `SELECT c.relname::text, coalesce(array_agg(a.attname::text)
	    FILTER (WHERE a.attname IN ('domain', 'identity', 'tenant', 'ip', 'api_key')
	    AND a.atttypid = 'text'::regtype), '{}')
	  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
	  GROUP BY 1 ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	all := slices.Clone(erasables)
	there := map[string]bool{}
	var name string
	var columns []string
	_, err = pgx.ForEachRow(rows, []any{&name, &columns}, func() error {
		there[name] = true
		named := slices.ContainsFunc(erasables, func(t erasable) bool { return t.table == name })
		if !named && slices.Contains(columns, "domain") && slices.Contains(columns, "identity") {
			all = append(all, erasable{table: name, where: byIdentity(columns)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	var places []place
	for _, t := range all {
		if there[t.table] {
			places = append(places, x.table(p, t))
		}
	}
	return places, nil
}

// byIdentity is the rows of a person in a table of usage or events, or of what is made of them.
func byIdentity(columns []string) string {
	where := `identity = ANY (@identities)`
	if slices.Contains(columns, "tenant") {
		where += ` OR tenant = ANY (@identities)`
	}
	if slices.Contains(columns, "ip") {
		where += ` OR ip = ANY (@ips)`
	}
	if slices.Contains(columns, "api_key") {
		where += ` OR api_key = ANY (@shown)`
	}
	return `domain = @domain AND (` + where + `)`
}

// table is one table.
func (x *Eraser) table(p *person, t erasable) place {
	name, args := pgx.Identifier{t.table}.Sanitize(), p.arguments()
	return place{
		name: t.table,
		remove: func(ctx context.Context) (n int64, err error) {
			sql := `DELETE FROM ` + name + ` WHERE ` + t.where
			if t.redact != "" {
				sql = `UPDATE ` + name + ` SET ` + t.redact + ` WHERE ` + t.where
			}
			err = x.patiently(ctx, func(tx pgx.Tx) error {
				done, err := tx.Exec(ctx, sql, args)
				n = done.RowsAffected()
				return err
			})
			return n, err
		},
		count: func(ctx context.Context) (n int64, err error) {
			err = x.patiently(ctx, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, `SELECT count(*) FROM `+name+` WHERE `+t.where, args).Scan(&n)
			})
			return n, err
		},
	}
}

// arguments are the parameters of the statements.
func (p *person) arguments() pgx.NamedArgs {
	return pgx.NamedArgs{
		"domain": p.Domain, "kind": p.Kind, "name": p.Name, "erasure": p.ID, "identities": p.identities, "ips": p.ips,
		"keys": p.Also.IDs, "digests": p.Also.Digests, "shown": p.shown(),
	}
}

// patiently runs statements that may take long.
func (x *Eraser) patiently(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, x.Database.Tasks, func(tx pgx.Tx) error {
		wire := tx.Conn().PgConn().Conn()
		err := wire.SetDeadline(time.Now().Add(eraseWithin)) // PostgreSQL may be silent for long
		if err != nil {
			return err
		}
		// where it fails the connection is lost, and the pool makes another
		defer func() { _ = wire.SetDeadline(time.Time{}) }()
		_, err = tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true),
		  set_config('lock_timeout', '0', true), set_config('spillway.log', 'off', true)`)
		if err != nil {
			return err
		}
		return f(tx)
	})
}
