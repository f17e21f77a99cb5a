package control_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/servers"
)

const recordSecret = "a secret of the record, long enough"

// askedRecord is what the questions are asked about: $1 is the name of ann in the record, $2 that of ben.
var askedRecord = []string{
	`INSERT INTO events SELECT now() - (i || ' minutes')::interval, 'one', i, 0, 'api', 'refused', 'per-user', $1, '',
	  '', 'GET', '/orders', 5, 5, 1, 429, 2.5, 0.2, 'eu', 1 FROM generate_series(1, 3) i`,
	`INSERT INTO events SELECT now() - interval '5 minutes', 'one', 10, 0, 'api', 'blocked', 'per-user', $2, '', '',
	  'POST', '/carts', 5, 5, 1, 403, 0, 0.2, 'eu', 1`,
	`INSERT INTO events SELECT now() - interval '5 minutes', 'one', 11, i, 'api', 'allowed', 'per-user', $2, '', '',
	  'GET', '/orders', 5, 5, 1, 200, 0, 0.2, 'eu', 100 FROM generate_series(1, 9) i`,
	`INSERT INTO events SELECT now() - interval '5 minutes', 'one', 12, i, 'other', 'refused', 'per-user', $2, '', '',
	  'GET', '/others', 5, 5, 1, 429, 0, 0.2, 'eu', 1 FROM generate_series(1, 9) i`,
	`INSERT INTO events SELECT now() - interval '25 hours', 'one', 13, i, 'api', 'refused', 'per-user', $2, '', '',
	  'GET', '/old', 5, 5, 1, 429, 0, 0.2, 'eu', 1 FROM generate_series(1, 9) i`,
	`INSERT INTO usage_minutes SELECT date_trunc('minute', now(), 'UTC'), 'api', '', $1, 'allowed', 7, 14`,
	`INSERT INTO usage_hours SELECT date_trunc('hour', now(), 'UTC'), 'api', '', $1, 'allowed', 7, 14`,
	`INSERT INTO usage_hours SELECT date_trunc('hour', now(), 'UTC'), 'api', '', $1, 'refused', 3, 3`,
	`INSERT INTO usage_hours SELECT date_trunc('hour', now(), 'UTC'), 'api', 'per-user', $1, 'allowed', 7, 14`,
	`INSERT INTO usage_hours SELECT date_trunc('month', now(), 'UTC') - interval '1 hour', 'api', '', $1, 'allowed', 50,
	  50`,
	// 98 latencies of at most 1 µs and two of at most 1.1 µs, in two days: p99 is the latter.
	`INSERT INTO endpoint_days SELECT date_trunc('day', now(), 'UTC') - d * interval '1 day', 'api', 'per-user',
	  '/orders', 'refused', 50, 50, '{49,1}' FROM generate_series(0, 1) d`,
	`INSERT INTO endpoint_days SELECT date_trunc('day', now(), 'UTC') - interval '9 days', 'api', 'per-user', '/orders',
	  'refused', 50, 50, '{0,0,0,0,50}'`,
	`UPDATE users SET last_request_at = now() WHERE identity = $1`,
	`INSERT INTO usage_days SELECT date_trunc('day', now(), 'UTC'), 'api', '', $1, 'allowed', 7, 14`,
	`INSERT INTO tenant_days SELECT date_trunc('day', now(), 'UTC'), domain, '', 'tenant:acme', outcome, 6, 60
	  FROM unnest(ARRAY['allowed', 'refused']) AS outcome, unnest(ARRAY['api', 'other']) AS domain`,
	`INSERT INTO tenant_days SELECT date_trunc('day', now(), 'UTC'), 'api', rule, 'tenant:small', 'allowed', 5, 8
	  FROM unnest(ARRAY['', 'per-user']) AS rule`,
	`INSERT INTO call_hours SELECT date_trunc('hour', now(), 'UTC'), 'api', identity, '/orders', outcome, 4, 40
	  FROM unnest(ARRAY['allowed', 'refused']) AS outcome, unnest(ARRAY[$1, $2]) AS identity`,
	`INSERT INTO cache_hours SELECT date_trunc('hour', now(), 'UTC') - i * interval '1 hour', domain, 'tokens', 3, 1
	  FROM unnest(ARRAY['api', 'other']) AS domain, generate_series(0, 30, 30) AS i`,
}

// askWorld is a control plane with a record whose identities are hidden.
func askWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 1, 0, "KEY_SECRET="+recordSecret)
	w.must("POST", versions, map[string]any{"text": rulesOf(2), "note": "the first"})
	w.must("POST", versions, map[string]any{"text": rulesOf(4), "note": "more"}, "If-Match", `"1"`)
	w.must("POST", versions, map[string]any{"text": rulesOf(4) + "  - { name: other, scope: user, limit: 9/1s }\n",
		"note": "another rule"}, "If-Match", `"2"`)
	w.must("PUT", published, map[string]any{"version": 1, "note": "too many"}, "If-Match", `"3"`)
	w.must("PUT", "/v1/domains/api/users/ann", map[string]any{"quota_day": 20, "quota_month": 1000})
	ctx, db := context.Background(), connect(t, w.postgres)
	keys := keys.NewNames("", []byte(recordSecret))
	ann, ben := keys.Identity("user", "ann"), keys.Identity("user", "ben")
	servers.Await(t, "the months of the record, and the name of ann", func() error {
		var named int
		err := db.QueryRow(ctx, `SELECT count(*) FROM users, pg_inherits WHERE identity = $1
		  AND inhparent = 'endpoint_days'::regclass`, ann).Scan(&named)
		if err == nil && named == 0 {
			err = fmt.Errorf("ann is not named %s yet", ann)
		}
		return err
	})
	servers.Inside(t, time.Hour, 50*time.Second) // its rows are of this hour and of this day
	names := strings.NewReplacer("$1", "'"+ann+"'", "$2", "'"+ben+"'")
	for _, sql := range askedRecord {
		_, err := db.Exec(ctx, names.Replace(sql))
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return w
}

// TestQuestionsAreAnswered asks each question by the command, and compares the rows.
func TestQuestionsAreAnswered(t *testing.T) {
	w := askWorld(t)
	for _, q := range []struct {
		ask  string
		want []string // parts of each line below the headings, in order
	}{
		{"violations", []string{" ann 3 ", " - 1 "}},
		{"violations --since 26h", []string{" - 10 ", " ann 3 "}},
		{"violations --limit 1", []string{" ann 3 "}},
		{"endpoints", []string{"GET /orders 3 ", "POST /carts 1 "}},
		{"refusals --user ann", []string{"refused per-user GET /orders 5 5 1 429 2.5", "GET /orders", "GET /orders"}},
		{"refusals --user carl", []string{"no rows"}},
		{"changes --rule per-user", []string{" changed 1 4 too many ", " changed 2 2 more ", " added 1 1 the first "}},
		{"changes --rule other", []string{" removed 1 4 too many ", " added 3 3 another rule "}},
		{"quota --user ann", []string{"ann - hour ", " 20 7 14 70 3", " 1000 7 14 1.4 3"}},
		{"near-quota", []string{"ann - day ", " 1000 14 1.4 0 "}},
		{"near-quota --limit 1", []string{" 20 14 70 0 "}},
		{"tenants", []string{"tenant:acme 6 60 6", "tenant:small 5 8 0"}},
		{"calls --user ann", []string{"/orders 4 40 4 "}},
		{"caches", []string{"tokens 3 1 75"}},
		{"caches --since 32h", []string{"tokens 6 2 75"}},
		{"latency", []string{"per-user 100 0.001 0.001 0.00104"}},
	} {
		lines := w.question(q.ask)
		if len(lines) != len(q.want) {
			t.Errorf("%s prints %d rows, want %d:\n%s", q.ask, len(lines), len(q.want), strings.Join(lines, "\n"))
			continue
		}
		for i, part := range q.want {
			if !strings.Contains(lines[i]+" ", part) {
				t.Errorf("%s: row %d is %q, want one with %q", q.ask, i, lines[i], part)
			}
		}
	}
	for path, status := range map[string]int{
		"/v1/domains/api/questions/refusals":              400,
		"/v1/domains/api/questions/violations?since=soon": 400,
		"/v1/domains/api/questions/violations?since=401d": 400,
		"/v1/domains/api/questions/violations?user=ann":   400,
		"/v1/domains/api/questions/why":                   404,
		"/v1/questions":                                   200,
	} {
		if got := w.call(0, "GET", path, nil); got.status != status {
			t.Errorf("%s answers %d, want %d: %s", path, got.status, status, got.text)
		}
	}
}

// question asks by the command, and returns the rows that it prints, with single spaces.
func (w *world) question(ask string) []string {
	w.t.Helper()
	args := append(strings.Fields("reports show --domain api --control "+w.controls[0].URL), strings.Fields(ask)...)
	out, err := exec.Command(servers.SpillwayBin(w.t), args...).Output()
	if err != nil {
		w.t.Fatalf("ask %s: %v\n%s", ask, err, out)
	}
	var rows []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		row := strings.Join(strings.Fields(line), " ")
		if row != strings.ToUpper(row) && !strings.Contains(row, ", since ") {
			rows = append(rows, row)
		}
	}
	return rows
}
