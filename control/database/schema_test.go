package database

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/migrations"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// open makes an empty database.
func open(t *testing.T) *DB {
	t.Helper()
	d := must.Get(Open(servers.Database(t).URL, PoolSizes{}))(t)
	t.Cleanup(d.Close)
	return d
}

func run(t *testing.T, d *DB, sql string) {
	t.Helper()
	_, err := d.changes.Exec(context.Background(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// november makes the partitions of a month.
const november = `DO $$ DECLARE t text; BEGIN
	  FOREACH t IN ARRAY '{events,usage_minutes,usage_hours,usage_days,tenant_minutes,tenant_hours,tenant_days,
	    call_hours,endpoint_minutes,endpoint_hours,endpoint_days,identity_hours}'::text[] LOOP
	    EXECUTE format('CREATE TABLE %s_2026_11 PARTITION OF %1$s
	      FOR VALUES FROM (''2026-11-01Z'') TO (''2026-12-01Z'')', t);
	  END LOOP;
	END $$`

// filling is rows that a database of each version may have, as statements.
var filling = map[int64][]string{
	1: {
		`INSERT INTO domains (name, created_by) VALUES ('shop', 'ann')`,
		`INSERT INTO rule_versions (domain, version, text, hash, rules, created_by)
		  VALUES ('shop', 1, 'domain: shop', encode(sha256('domain: shop'), 'hex'),
		  '[{"name": "a", "scope": ["user"]}]', 'ann')`,
		`INSERT INTO publications (domain, publication, version, published_by) VALUES ('shop', 1, 1, 'ann')`,
		`INSERT INTO tiers (domain, name, updated_by) VALUES ('shop', 'gold', 'ann')`,
		`INSERT INTO users (domain, name, tier, updated_by) VALUES ('shop', 'bob', 'gold', 'ann')`,
		`INSERT INTO api_keys (domain, id, digest, prefix, user_name, created_by)
		  VALUES ('shop', 'k', sha256('k'), 'spw_', 'bob', 'ann')`,
		`INSERT INTO blocks (domain, kind, name, updated_by) VALUES ('shop', 'ip', '192.0.2.0/24', 'ann')`,
		november,
		`INSERT INTO events
		  SELECT '2026-11-05Z', 'one', 1, 0, 'shop', 'refused', 'a', 'user:bob', '', '', 'GET', '/', 5, 5, 1, 429, 1,
		  0.2, 'eu', 1`,
		`INSERT INTO usage_minutes VALUES ('2026-11-05Z', 'shop', '', 'user:bob', 'allowed', 1, 1)`,
		`INSERT INTO record_sources (sidecar, stream, sequence, region) VALUES ('one', 'usage', 1, 'eu')`,
		`INSERT INTO usage_hours VALUES ('2026-11-05Z', 'shop', '', 'user:bob', 'allowed', 1, 1)`,
		`INSERT INTO usage_days VALUES ('2026-11-05Z', 'shop', '', 'user:bob', 'allowed', 1, 1)`,
		`INSERT INTO tenant_minutes VALUES ('2026-11-05Z', 'shop', '', 'tenant:acme', 'allowed', 1, 1)`,
		`INSERT INTO tenant_hours VALUES ('2026-11-05Z', 'shop', '', 'tenant:acme', 'allowed', 1, 1)`,
		`INSERT INTO tenant_days VALUES ('2026-11-05Z', 'shop', '', 'tenant:acme', 'allowed', 1, 1)`,
		`INSERT INTO call_hours VALUES ('2026-11-05Z', 'shop', 'user:bob', '/', 'allowed', 1, 1)`,
		`INSERT INTO endpoint_minutes VALUES ('2026-11-05Z', 'shop', '', '/', 'allowed', 1, 1, '{0,1}')`,
		`INSERT INTO endpoint_hours VALUES ('2026-11-05Z', 'shop', '', '/', 'allowed', 1, 1, '{0,1}')`,
		`INSERT INTO endpoint_days VALUES ('2026-11-05Z', 'shop', '', '/', 'allowed', 1, 1, '{0,1}')`,
		`INSERT INTO cache_minutes VALUES ('2026-11-05Z', 'shop', 'denials', 1, 1)`,
		`INSERT INTO cache_hours VALUES ('2026-11-05Z', 'shop', 'denials', 1, 1)`,
		`INSERT INTO cache_days VALUES ('2026-11-05Z', 'shop', 'denials', 1, 1)`,
		`INSERT INTO record_refused (stream, entry, sidecar, sequence, bytes, reason)
		  VALUES ('usage', '1-1', 'one', 2, 10, 'x')`,
		`INSERT INTO record_names (fingerprint) VALUES ('x')`,
		`INSERT INTO archives (path, region, day, rows, bytes, checksum, source, digest)
		  VALUES ('region=eu/x', 'eu', '2026-05-01', 5, 100, repeat('ab', 32), 'events_2026_05/1', 1)`,
		`INSERT INTO erasures (domain, kind, name, asked_by) VALUES ('shop', 'user', 'bob', 'ann')`,
		`INSERT INTO publications (domain, publication, published_by) VALUES ('shop', 2, 'ann')`,
		`INSERT INTO identity_hours VALUES ('2026-11-05Z', 'shop', 'user:bob', 1, '{1}')`,
		`UPDATE api_keys SET counted_id = 'key:x'`,
	},
}

// filled are the tables of filling.
var filled = []string{
	"domains", "rule_versions", "publications", "tiers", "profiles", "api_keys", "archives", "erasures", "events",
	"usage_minutes", "record_sources", "usage_hours", "usage_days", "endpoint_minutes", "endpoint_hours",
	"endpoint_days", "cache_minutes", "cache_hours", "cache_days", "record_refused", "record_names", "identity_hours",
	"tenant_minutes", "tenant_hours", "tenant_days", "call_hours",
}

// versionsOf are the versions of the schema.
func versionsOf(t *testing.T) (all []int64) {
	t.Helper()
	entries := must.Get(migrations.Files.ReadDir("."))(t)
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		n := must.Get(strconv.ParseInt(number, 10, 64))(t)
		all = append(all, n)
	}
	return all
}

// TestMigrationsFromEveryVersion fills a database of each version and brings it to the newest. All rows are there after
// it, and the change log has all that has to be in Redis.
func TestMigrationsFromEveryVersion(t *testing.T) {
	ctx := context.Background()
	newest := must.Get(schemaVersion())(t)
	for _, from := range versionsOf(t) {
		d := open(t)
		at, err := d.Migrate(ctx, from)
		if err != nil || at != from {
			t.Fatalf("migrate to %d: at %d, %v", from, at, err)
		}
		rows := 0
		for step := int64(1); step <= from; step++ {
			for _, sql := range filling[step] {
				run(t, d, sql)
				if strings.HasPrefix(sql, "INSERT") {
					rows++
				}
			}
		}
		at, err = d.Migrate(ctx, 0)
		if err != nil || at != newest {
			t.Fatalf("migrate from %d: at %d, %v", from, at, err)
		}
		if err = d.CheckSchema(ctx); err != nil {
			t.Errorf("from %d: %v", from, err)
		}
		kept := 0
		for _, table := range filled {
			var more int
			err = errors.Join(err, d.changes.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&more))
			kept += more
		}
		if err != nil || kept != rows {
			t.Errorf("from %d: %d of %d rows are kept: %v", from, kept, rows, err)
		}
		var logged string
		err = d.changes.QueryRow(ctx, `SELECT string_agg(DISTINCT kind, ' ' ORDER BY kind) FROM audit
		  WHERE done_at IS NULL`).Scan(&logged)
		if want := "ip key rules tier user"; err != nil || logged != want {
			t.Errorf("from %d: the log has changes of %s, want %s: %v", from, logged, want, err)
		}
	}
}

// TestTheDatabaseChecks holds the constraints against rows that must not be.
func TestTheDatabaseChecks(t *testing.T) {
	ctx, d := context.Background(), open(t)
	servers.Await(t, "word of an empty database", func() error {
		err := d.CheckSchema(ctx)
		if err == nil || !strings.Contains(err.Error(), "--migrate") {
			return fmt.Errorf("an empty database: %w", err)
		}
		return nil
	})
	must.Get(d.Migrate(ctx, 0))(t)
	for _, sql := range filling[1] {
		run(t, d, sql)
	}
	for _, sql := range []string{
		`UPDATE rule_versions SET note = 'x'`,
		`DELETE FROM rule_versions`,
		`DELETE FROM publications`,
		`UPDATE audit SET who = 'eve'`,
		`DELETE FROM audit`,
		`TRUNCATE audit`,
		`INSERT INTO rule_versions (domain, version, text, hash, created_by)
		  VALUES ('shop', 2, 'domain: shop', 'ab', 'ann')`,
		`INSERT INTO rule_versions (domain, version, text, hash, created_by)
		  VALUES ('shop', 1, 'x', encode(sha256('x'), 'hex'), 'ann')`,
		`INSERT INTO publications (domain, publication, version, published_by) VALUES ('shop', 2, 7, 'ann')`,
		`UPDATE tiers SET price = -1`,
		`DELETE FROM tiers`,
		`UPDATE users SET quota_day = 0`,
		`UPDATE users SET burst = 5`,
		`UPDATE users SET block_reason = 'x'`,
		`UPDATE users SET tier = 'none'`,
		`DELETE FROM users`,
		`UPDATE api_keys SET digest = 'short'`,
		`UPDATE api_keys SET revoked_at = now()`,
		`INSERT INTO api_keys (domain, id, digest, prefix, user_name, created_by)
		  VALUES ('shop', 'k2', sha256('k'), 'spw_', 'bob', 'ann')`,
		`INSERT INTO blocks (domain, kind, name, updated_by) VALUES ('shop', 'ip', 'nowhere', 'ann')`,
		`INSERT INTO blocks (domain, kind, name, updated_by) VALUES ('shop', 'planet', 'mars', 'ann')`,
		`UPDATE profiles SET quota_day = 5 WHERE kind = 'ip'`,
		`UPDATE profiles SET blocked = false WHERE kind = 'ip'`,
		`INSERT INTO rule_versions (domain, version, text, hash, rules)
		  VALUES ('shop', 2, 'x', encode(sha256('x'), 'hex'), '{}')`,
	} {
		if _, err := d.changes.Exec(ctx, sql); err == nil {
			t.Errorf("the database takes %s", sql)
		}
	}
}

// TestEveryForeignKeyHasAnIndex reads the catalogue: an index has to begin with the columns of each foreign key.
func TestEveryForeignKeyHasAnIndex(t *testing.T) {
	ctx, d := context.Background(), open(t)
	must.Get(d.Migrate(ctx, 0))(t)
	const bare = `SELECT c.conrelid::regclass::text || ' ' || c.conname FROM pg_constraint c WHERE c.contype = 'f'
	  AND NOT EXISTS (
	  SELECT 1 FROM pg_index i WHERE i.indrelid = c.conrelid AND i.indpred IS NULL
	  AND (i.indkey::int2[])[0:array_length(c.conkey, 1) - 1] @> c.conkey)`
	names := func() []string {
		t.Helper()
		rows := must.Get(d.changes.Query(ctx, bare))(t)
		all := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		return all
	}
	if found := names(); len(found) > 0 {
		t.Errorf("foreign keys without an index: %v", found)
	}
	run(t, d, `DROP INDEX api_keys_tier`)
	if found := names(); len(found) != 1 || !strings.HasPrefix(found[0], "api_keys") {
		t.Errorf("without an index of api_keys the test finds %v", found)
	}
}

// TestMigrationsHaveTimeToSpare keeps the time that other statements have away from migrations: an index of a table
// that is filled takes minutes.
func TestMigrationsHaveTimeToSpare(t *testing.T) {
	ctx, d := context.Background(), open(t)
	conn := must.Get(pgx.ConnectConfig(ctx, d.unhurried()))(t)
	defer conn.Close(ctx)
	for name, where := range map[string]Querier{"0": conn, "10s": d.changes} {
		rows := must.Get(where.Query(ctx, "SHOW statement_timeout"))(t)
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		if err != nil || got != name {
			t.Errorf("a statement has %s, want %s: %v", got, name, err)
		}
	}
	if _, hurried := conn.PgConn().Conn().(*patient); hurried {
		t.Error("the connection of a migration fails where an answer takes long")
	}
}

// TestTimesWithoutAYear refuses times that no program and no JSON can read.
func TestTimesWithoutAYear(t *testing.T) {
	d := migrated(t)
	for _, sql := range filling[1][1:8] {
		run(t, d, sql)
	}
	run(t, d, `UPDATE users SET blocked = true`)
	for _, at := range []string{"infinity", "-infinity", "10000-01-01Z", "0044-03-15Z BC"} {
		for _, set := range []string{"users SET blocked_until", "blocks SET until", "api_keys SET expires_at"} {
			if _, err := d.changes.Exec(t.Context(), `UPDATE `+set+` = '`+at+`'`); err == nil {
				t.Errorf("the database takes %s = %s", set, at)
			}
		}
	}
}

// TestAStatementByHandIsLogged changes rows by the tables and by the views. Each change has its line, and who counts a
// request makes none.
func TestAStatementByHandIsLogged(t *testing.T) {
	d := migrated(t)
	for _, one := range []struct{ sql, want string }{
		{`INSERT INTO users (domain, name) VALUES ('shop', 'ann')`, "insert user ann 1"},
		{`INSERT INTO blocks (domain, kind, name) VALUES ('shop', 'user', 'ann')`, "update user ann 2"},
		{`UPDATE users SET quota_day = 5`, "update user ann 3"},
		{`UPDATE users SET exceeded_count = 5, last_request_at = now(), identity = 'user:ann'`, "update user ann 3"},
		{`DELETE FROM blocks`, "update user ann 4"},
		{`INSERT INTO blocks (domain, kind, name) VALUES ('shop', 'ip', '192.0.2.1')`, "insert ip 192.0.2.1 1"},
		{`DELETE FROM blocks`, "delete ip 192.0.2.1 1"},
		{`DELETE FROM users`, "delete user ann 4"},
	} {
		run(t, d, one.sql)
		var got string
		err := d.changes.QueryRow(t.Context(), `SELECT concat_ws(' ', action, kind, name,
		  coalesce(after, before)->>'revision')
		  FROM audit WHERE done_at IS NULL AND who = session_user ORDER BY id DESC LIMIT 1`).Scan(&got)
		if err != nil || got != one.want {
			t.Errorf("%s is logged as %q (%v), want %q", one.sql, got, err, one.want)
		}
	}
}
