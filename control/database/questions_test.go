package database

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database/questions"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// full is whether the long rows run. The race detector has nothing to find in them.
const full = servers.Full && !servers.Race

// events is how many the plans are tested on.
func events() int {
	if full {
		return 10_000_000
	}
	return 20_000
}

// recordOf is rows of the record that a fleet has written in the last 40 days: versions of the rules; what a user has
// used; hours and days of endpoints. Some is how many of each are made.
func recordOf(some int) []string {
	return []string{
		`INSERT INTO domains (name, created_by) VALUES ('shop', 'ann'), ('other', 'ann')`,
		fmt.Sprintf(`INSERT INTO rule_versions (domain, version, text, hash, rules, created_by)
		  SELECT 'shop', v, 'domain: shop', encode(sha256('domain: shop'), 'hex'), (SELECT jsonb_agg(jsonb_build_object(
		    'name', 'rule-' || r, 'priority', 100 + v, 'enabled', true, 'scope', '["user"]'::jsonb))
		    FROM generate_series(1, %d) r), 'ann'
		  FROM generate_series(1, 40) v`, 20*some),
		`INSERT INTO publications (domain, publication, version, published_by) SELECT 'shop', v, v, 'ann'
		  FROM generate_series(1, 40) v`,
		fmt.Sprintf(`INSERT INTO users (domain, name, quota_month, updated_by, identity, last_request_at)
		  SELECT 'shop', 'u' || i, 1000000, 'ann', 'user:u' || i, now() - i * interval '1 hour'
		  FROM generate_series(0, %d) i`, 200*some),
		fmt.Sprintf(`INSERT INTO usage_minutes SELECT date_trunc('minute', now() - i * interval '7 minutes', 'UTC'),
		  'shop', '', 'user:u' || i %% 20 + u, 'allowed', 3, 3
		  FROM generate_series(0, 8000) i, generate_series(1, %d) u`, some),
		`INSERT INTO usage_hours SELECT date_trunc('hour', minute, 'UTC'), domain, rule, identity, outcome,
		  sum(requests), sum(cost) FROM usage_minutes GROUP BY 1, 2, 3, 4, 5`,
		`INSERT INTO usage_days SELECT date_trunc('day', at, 'UTC'), domain, rule, identity, outcome,
		  sum(requests), sum(cost) FROM usage_hours GROUP BY 1, 2, 3, 4, 5`,
		`INSERT INTO tenant_hours SELECT at, domain, rule, replace(identity, 'user:', 'tenant:'), outcome,
		  requests, cost
		  FROM usage_hours`,
		`INSERT INTO tenant_days SELECT at, domain, rule, replace(identity, 'user:', 'tenant:'), outcome, requests, cost
		  FROM usage_days`,
		`INSERT INTO call_hours SELECT at, domain, identity, '/v1/things/' || e, outcome, requests, cost
		  FROM usage_hours, generate_series(1, 5) e`,
		`INSERT INTO cache_hours SELECT date_trunc('hour', now() - h * interval '1 hour', 'UTC'), d, c, 5, 5
		  FROM generate_series(0, 959) h, unnest('{shop,other}'::text[]) d,
		    unnest('{denials,profiles,tokens}'::text[]) c`,
		fmt.Sprintf(`INSERT INTO endpoint_hours SELECT date_trunc('hour', now() - h * interval '1 hour', 'UTC'), 'shop',
		  'rule-' || r, '/v1/things/' || e, 'refused', 60, 60, array_fill(1::bigint, ARRAY[60])
		  FROM generate_series(0, 959) h, generate_series(1, %d) r, generate_series(1, 3) e`, 2*some),
		`INSERT INTO endpoint_days SELECT date_trunc('day', at, 'UTC'), domain, rule, endpoint, outcome, sum(requests),
		  sum(cost), array_fill(count(*), ARRAY[60]) FROM endpoint_hours GROUP BY 1, 2, 3, 4, 5`,
	}
}

// generateEvents makes some of $1 events of 40 days: two domains, 100,000 users, 200 endpoints, 50 rules. Six in ten
// are refusals.
const generateEvents = `INSERT INTO events SELECT now() - ($1 - i) * interval '40 days' / $1,
  'sidecar-' || i % 8 || '-5f3a9c', i / 8 + 1, 0, CASE WHEN i % 20 = 0 THEN 'other' ELSE 'shop' END,
  CASE WHEN i % 10 < 6 THEN 'refused' ELSE 'allowed' END, 'rule-' || h % 50, 'user:u' || h % 100000, '',
  '192.0.2.' || h % 250, 'GET', '/v1/things/' || h % 200, 100, 100, 1, 429, 1.5, 0.3, 'eu', 1
  FROM generate_series($2::bigint, $3::bigint) i, LATERAL (SELECT hashint8(i) & 2147483647 AS h) AS mixed`

// fillRecord makes a database with the months of the record, and fills it.
func fillRecord(t *testing.T, n int) (*DB, *pgx.Conn) {
	t.Helper()
	ctx := context.Background()
	var server *servers.Postgres
	if full {
		server = servers.StartPostgres(t, "checkpoint_timeout=30min", "shared_buffers=512MB", "max_wal_size=4GB",
			"maintenance_work_mem=256MB")
	} else {
		server = servers.Database(t)
	}
	d := must.Get(Open(server.URL, PoolSizes{}))(t)
	t.Cleanup(d.Close)
	must.Get(d.Migrate(ctx, 0))(t)
	for month := time.Now().UTC().AddDate(0, 0,
		-75); month.Before(time.Now().AddDate(0, 1, 0)); month = month.AddDate(0, 0, 28) {
		first := time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC)
		for _, table := range []string{"events", "usage_minutes", "usage_hours", "usage_days", "tenant_hours",
			"tenant_days", "call_hours", "endpoint_hours", "endpoint_days"} {
			run(t, d, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s_%s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')",
				table, first.Format("2006_01"), table, first.Format(time.RFC3339), first.AddDate(0, 1,
					0).Format(time.RFC3339)))
		}
	}
	conn := unhurried(t, server)
	began, some := time.Now(), 1
	if full {
		some = 20
	}
	for _, sql := range recordOf(some) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for at := 0; at < n; at += 1_000_000 {
		must.Get(conn.Exec(ctx, generateEvents, n, at, min(at+1_000_000, n)-1))(t)
	}
	t.Logf("%d events made in %v", n, time.Since(began).Round(time.Millisecond))
	must.Get(conn.Exec(ctx, "VACUUM ANALYZE"))(t)
	return d, conn
}

// TestQuotasAreListedByLength asks in the first hour of a month: the hour begins before the day, and the day with the
// month.
func TestQuotasAreListedByLength(t *testing.T) {
	_, conn := fillRecord(t, 0)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	args := pgx.NamedArgs{"domain": "shop", "user": "u7", "identity": "user:u7",
		"hour": midnight.Add(-50 * time.Minute), "day": midnight, "month": midnight}
	i := slices.IndexFunc(questions.All, func(q questions.Question) bool { return q.Name == "quota" })
	rows := must.Get(conn.Query(context.Background(), questions.All[i].SQL, args))(t)
	found := must.Get(pgx.CollectRows(rows, pgx.RowToMap))(t)
	var got []any
	for _, row := range found {
		got = append(got, row["per"])
	}
	if want := []any{"hour", "day", "month"}; !slices.Equal(got, want) {
		t.Errorf("the quotas are listed as %v, want %v", got, want)
	}
}

// unhurried is a connection whose statements may take long.
func unhurried(t testing.TB, server *servers.Postgres) *pgx.Conn {
	t.Helper()
	ctx := context.Background()
	conn := must.Get(pgx.Connect(ctx, server.URL))(t)
	t.Cleanup(func() { conn.Close(ctx) })
	return conn
}

// planNode is a step of a plan.
type planNode struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []planNode
}

// each visits all steps that were taken.
func (p *planNode) each(visit func(*planNode)) {
	if p.Loops > 0 {
		visit(p)
	}
	for i := range p.Plans {
		p.Plans[i].each(visit)
	}
}

// TestQuestionsAreServedByTheirIndexes reads the plan of each question. With few events the planner is kept from
// reading them all, because it would be right to; with ten million (make test-control) it is left alone.
func TestQuestionsAreServedByTheirIndexes(t *testing.T) {
	ctx, n := context.Background(), events()
	d, conn := fillRecord(t, n)
	showSizes(t, d)
	tx := must.Get(conn.Begin(ctx))(t)
	defer tx.Rollback(ctx)
	must.Get(tx.Exec(ctx, fmt.Sprintf("SET LOCAL enable_seqscan = %v", full)))(t)
	parents := parentsOf(t, tx)
	now := time.Now().UTC()
	for i := range questions.All {
		q := &questions.All[i]
		args := pgx.NamedArgs{"domain": "shop", "limit": 20, "since": now.Add(-q.Since), "user": "u7", "rule": "rule-7",
			"identity": "user:u7",
			"hour":     now.Truncate(time.Minute).Add(-59 * time.Minute), "day": now.Truncate(
				24 * time.Hour), "month": now.AddDate(0, 0, -30).Truncate(time.Hour)}
		began := time.Now()
		var text string
		err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+q.SQL, args).Scan(&text)
		if err != nil {
			t.Fatalf("%s: %v", q.Name, err)
		}
		var used []string
		for _, step := range stepsOf(t, text) {
			if step.Type == "Seq Scan" && large(step.Relation) {
				t.Errorf("%s reads all of %s", q.Name, step.Relation)
			}
			if parent := parents[step.Index]; parent != "" {
				step.Index = parent
			}
			if step.Index != "" && !slices.Contains(used, step.Index+" ("+step.Type+")") {
				used = append(used, step.Index+" ("+step.Type+")")
			}
		}
		for _, index := range q.Indexes {
			if !slices.ContainsFunc(used, func(one string) bool { return strings.HasPrefix(one, index+" ") }) {
				t.Errorf("%s does not use %s:\n%s", q.Name, index, text)
			}
		}
		t.Logf("%-12s %8.1f ms  %s", q.Name, float64(time.Since(began).Microseconds())/1000, strings.Join(used, ", "))
	}
}

// stepsOf is all steps of a plan that were taken.
func stepsOf(t *testing.T, text string) []*planNode {
	t.Helper()
	var plans []struct{ Plan planNode }
	err := json.Unmarshal([]byte(text), &plans)
	if err != nil || len(plans) != 1 {
		t.Fatalf("the plan cannot be read: %v\n%s", err, text)
	}
	var all []*planNode
	plans[0].Plan.each(func(step *planNode) { all = append(all, step) })
	return all
}

// large reports whether a table grows with time.
func large(table string) bool {
	return slices.ContainsFunc([]string{"events", "usage_", "tenant_", "call_", "endpoint_", "rule_versions",
		"profiles"},
		func(name string) bool { return strings.HasPrefix(table, name) })
}

// parentsOf is the index of the whole table, by the name of the index of a month.
func parentsOf(t *testing.T, q Querier) map[string]string {
	t.Helper()
	rows := must.Get(Many[struct{ Child, Parent string }](context.Background(), q, `SELECT c.relname AS child,
	  p.relname AS parent FROM pg_inherits i
	  JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'i' JOIN pg_class p ON p.oid = i.inhparent`))(t)
	all := map[string]string{}
	for _, row := range rows {
		all[row.Child] = row.Parent
	}
	return all
}

// showSizes logs what a million events take.
func showSizes(t *testing.T, d *DB) {
	t.Helper()
	rows := must.Get(Many[struct {
		Name  string
		Bytes int64
	}](context.Background(), d.changes, `SELECT coalesce(p.relname, c.relname) AS name,
	  sum(pg_relation_size(c.oid))::bigint AS bytes FROM pg_class c
	  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
	  WHERE c.relkind IN ('r', 'i') AND c.relname LIKE 'events\_2%' GROUP BY 1 ORDER BY 1`))(t)
	for _, row := range rows {
		t.Logf("%-16s %7.1f MB, %5.1f bytes for each event", row.Name, float64(row.Bytes)/1e6,
			float64(row.Bytes)/float64(events()))
	}
}
