package copier

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	admittedSum = `SELECT coalesce(sum(requests), 0)::bigint FROM usage_minutes WHERE outcome = 'allowed'`
	sourcesOf   = ` FROM record_sources WHERE stream = $1`
)

// TestEveryRowIsStoredOnce sends entries as sidecars do, some of them twice, and compares all tables.
func TestEveryRowIsStoredOnce(t *testing.T) {
	w := newWorld(t)
	ctx, now := context.Background(), time.Now().UTC()
	w.keys()
	for _, e := range []journal.Entry{
		usageOf("one", 1, "ann", now, 10, 2), usageOf("two", 1, "ann", now, 5, 0), usageOf("one", 1, "ann", now, 10, 2),
		usageOf("one", 2, "ann", now.Add(-time.Hour), 7, 1), usageOf("one", 5, "ben", now, 1, 0),
	} {
		w.send("usage", e)
	}
	last := eventsOf("one", 1, now, 50)
	last.Rows = []byte(strings.Replace(string(last.Rows), `"rule"`, `"api_key":"spw_abcdef","rule"`, 20))
	last.Dropped, last.Ended = 3, true
	w.send("events", last)
	w.send("events", last)
	w.drain()
	w.want("admitted", 23, admittedSum)
	w.want("refused", 3, `SELECT sum(requests)::bigint FROM usage_minutes WHERE outcome = 'refused'`)
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days"} {
		w.want("requests of "+table, 26, `SELECT sum(requests)::bigint FROM `+table)
		w.want("cost of "+table, 52, `SELECT sum(cost)::bigint FROM `+table)
	}
	for _, table := range []string{"tenant_minutes", "tenant_hours", "tenant_days", "call_hours"} {
		w.want("requests of "+table, 23, `SELECT sum(requests)::bigint FROM `+table)
		w.want("cost of "+table, 46, `SELECT sum(cost)::bigint FROM `+table)
	}
	w.want("requests of ann to GET /", 22, `SELECT sum(requests)::bigint FROM call_hours c JOIN users u USING (domain,
	  identity) WHERE u.name = 'ann' AND endpoint = 'GET /'`)
	for _, table := range []string{"endpoint_minutes", "endpoint_hours", "endpoint_days"} {
		w.want("requests of "+table, 23, `SELECT sum(requests)::bigint FROM `+table)
		w.want("latencies of "+table, 23, `SELECT sum(n)::bigint FROM `+table+`, unnest(latencies) AS n`)
	}
	w.want("hits of caches", 12, `SELECT sum(hits)::bigint FROM cache_days`)
	w.want("events", 50,
		`SELECT count(*) FROM events WHERE region = 'eu' AND sidecar = 'one' AND sequence = 1 AND status = 429 AND
		  retry_after = 1.5 AND latency = 0.25`)
	w.want("missing", 2, `SELECT sum(missing)::bigint`+sourcesOf, "usage")
	w.want("dropped", 3, `SELECT sum(dropped)::bigint`+sourcesOf+` AND ended`, "events")
	w.want("rows", 50, `SELECT sum(rows)::bigint`+sourcesOf, "events")
	w.want("exceeded by ann", 3, `SELECT exceeded_count FROM users WHERE name = 'ann'`)
	w.want("last request of ann", minuteOf(now)*60,
		`SELECT extract(epoch FROM last_request_at)::bigint FROM users WHERE name = 'ann'`)
	w.want("requests of the key of ann", 25, keyTotal+` AND last_used_at = $2`, "ann", time.Unix(minuteOf(now)*60, 0))
	w.want("refused requests of it", 3, `SELECT refused_requests FROM api_keys WHERE user_name = 'ann'`)
	w.want("requests of the key of ben", 1, keyTotal, "ben")
	w.want("changes for Redis", 0, `SELECT count(*) FROM audit WHERE done_at IS NULL`)
	queued, err := w.Queued(ctx)
	if err != nil || queued["usage"]+queued["events"] != 0 {
		t.Errorf("after the copy the streams have %v: %v", queued, err)
	}
	s := w.Stats().Streams[1]
	if s.Entries != 4 || s.Again != 1 || s.Missing != 2 {
		t.Errorf("the copier counts %+v, want 4 entries, 1 again, 2 missing", s)
	}
	var p50 float64
	err = w.db.QueryRow(ctx, `SELECT latency_quantile(sum_latencies(latencies), 0.5) FROM endpoint_minutes`).Scan(&p50)
	if err != nil || math.Abs(p50-1) > 0.05 {
		t.Errorf("p50 is %v ms, want 1 within 5 %%: %v", p50, err)
	}
}

// TestEventsShowTheIDsOfTheirKeys: a mesh sends the id or the key itself. A key of which the database has none stays as
// the sidecar has named it, and so does one of another domain.
func TestEventsShowTheIDsOfTheirKeys(t *testing.T) {
	w := newWorld(t)
	w.keys()
	nameOf := func(key string) string { return w.cfg.Keys.Identity(journal.KeyKind, journal.KeyOf(key)) }
	now := time.Now().UTC()
	var events []journal.Event
	for n, key := range []string{nameOf("key of ann"), nameOf("key of ben"), nameOf("unknown"), "of-a-file", ""} {
		for _, domain := range []string{"api", "other"} {
			events = append(events, journal.Event{At: now.UnixMicro(), Domain: domain, Outcome: "refused", APIKey: key,
				Endpoint: fmt.Sprint(n)})
		}
	}
	w.send("events", journal.Entry{Sidecar: "one", Sequence: 1, Rows: (&journal.Rows{Events: events}).Marshal()})
	w.drain()
	for n, want := range []string{"key of ann", "b", nameOf("unknown"), "of-a-file", ""} {
		w.want("events of "+want, 1, `SELECT count(*) FROM events WHERE domain = 'api' AND endpoint = $1
		  AND api_key = $2`, fmt.Sprint(n), want)
	}
	w.want("ids in another domain", 0, `SELECT count(*) FROM events WHERE domain = 'other' AND api_key IN ('key of ann',
	  'b')`)
}

// TestQuantilesOfTheDatabaseAreThoseOfTheSketch compares latency_quantile with journal.Sketch.
// TestAnEntryMayHoldOneListAlone: an entry is cut at a number of bytes, so it may hold any one list and nothing else.
func TestAnEntryMayHoldOneListAlone(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UTC()
	all := journal.Rows{}
	err := json.Unmarshal(usageOf("one", 1, "ann", now, 1, 0).Rows, &all)
	if err != nil {
		t.Fatal(err)
	}
	sequence := int64(0)
	for table, alone := range map[string]journal.Rows{
		"usage_minutes": {Identities: all.Identities}, "tenant_minutes": {Tenants: all.Tenants},
		"call_hours": {Calls: all.Calls}, "endpoint_minutes": {Endpoints: all.Endpoints},
		"cache_minutes": {Caches: all.Caches},
	} {
		sequence++
		w.send("usage", journal.Entry{Sidecar: "one", Sequence: sequence, Region: "eu", Rows: alone.Marshal()})
		w.drain()
		w.want("rows of "+table, 1, `SELECT count(*) FROM `+table)
	}
}

func TestQuantilesOfTheDatabaseAreThoseOfTheSketch(t *testing.T) {
	w := newWorld(t)
	var s journal.Sketch
	for n := range 1000 {
		s.Add(time.Duration(n*n)*time.Microsecond/7, 1)
	}
	for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.99, 1} {
		var got float64
		err := w.db.QueryRow(context.Background(), `SELECT latency_quantile(all_latencies($1::text::bigint[]), $2)`,
			latencies(&s), q).Scan(&got)
		want := s.Quantile(q).Seconds() * 1000
		if err != nil || math.Abs(got-want) > want/1000 {
			t.Errorf("the quantile %v is %v ms, want %v: %v", q, got, want, err)
		}
	}
}

// TestLatenciesOfIdentities adds events up by identity and hour: each as often as its weight, in the buckets of
// all other latencies.
func TestLatenciesOfIdentities(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UTC().Truncate(time.Hour)
	var want journal.Sketch
	for n := range int64(3) {
		var events []journal.Event
		for i := range int64(40) {
			e := journal.Event{At: now.Add(time.Duration(i%2) * -time.Hour).UnixMicro(), Domain: "api",
				Outcome: "allowed", Identity: "user:ann", Latency: (n + 1) * i * i * i, Weight: 1 + i%3*50}
			events = append(events, e)
			want.Add(time.Duration(e.Latency)*time.Microsecond, e.Weight)
		}
		w.send("events", journal.Entry{Sidecar: "one", Sequence: n + 1,
			Rows: (&journal.Rows{Events: events}).Marshal()})
		w.drain()
	}
	w.want("hours", 2, `SELECT count(*) FROM identity_hours WHERE identity = 'user:ann' AND samples = 60`)
	for name, sql := range map[string]string{
		"hours": `SELECT latency_quantile(all_latencies(sum_few_latencies(latencies)), $1) FROM identity_hours`,
		"events": `SELECT latency_quantile(all_latencies(sum_few_latencies(ARRAY[latency_bucket(latency) << 40 |
		  weight])), $1) FROM events`,
	} {
		for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.99, 1} {
			var got float64
			err := w.db.QueryRow(context.Background(), sql, q).Scan(&got)
			if want := want.Quantile(q).Seconds() * 1000; err != nil || math.Abs(got-want) > want/1000 {
				t.Errorf("the quantile %v of %s is %v ms, want %v: %v", q, name, got, want, err)
			}
		}
	}
}

// TestAKeyThatIsNewerThanItsName counts requests of keys that are made when names were given already.
func TestAKeyThatIsNewerThanItsName(t *testing.T) {
	w := newWorld(t)
	w.send("usage", usageOf("one", 1, "ann", time.Now(), 4, 0))
	made := false
	w.passed = func(step string) {
		if step == "sources" && !made {
			made = true
			w.keys()
		}
	}
	w.drain()
	w.want("requests of the key", 4, keyTotal, "ann")
}

// TestAPoisonEntryIsLeftOut sends entries that cannot be stored among good ones.
func TestAPoisonEntryIsLeftOut(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UTC()
	for n := range int64(2) { // each is small enough, and their sum is not
		large := usageOf("b", n+1, "ben", now, math.MaxInt64/2, 0)
		large.Rows = []byte(strings.ReplaceAll(string(large.Rows), `"api"`, `"large"`))
		w.send("usage", large)
	}
	w.send("usage", journal.Entry{Sidecar: "a", Sequence: 1, Rows: []byte(`{"identities":[{"minute":1,"domain":"api"`)})
	w.send("usage", journal.Entry{Sidecar: "a", Sequence: 2,
		Rows: []byte(fmt.Sprintf(`{"identities":[{"minute":%d,"domain":"api","name":"user:x","outcome":"allowed",
		  "requests":-5,"cost":1}]}`, minuteOf(now)))})
	w.redis.Do(t, "XADD", w.cfg.Keys.Shared("usage"), "*", "noise", "yes")
	w.send("usage", journal.Entry{Sidecar: "a", Sequence: math.MaxInt64 - 1, Rows: []byte(`{}`)})
	long := usageOf("a", 3, "ann", now, 1, 0)
	long.Rows = []byte(strings.Replace(string(long.Rows), `"GET /"`, `"`+strings.Repeat("x", 5000)+`\u0000"`, -1))
	w.send("usage", long)
	w.send("usage", usageOf("a", 4, "ann", now, 9, 0))
	w.drain()
	w.want("what is stored of a", 10, admittedSum+` AND requests < 1000`)
	w.want("refused of a", 2, `SELECT sum(refused)::bigint`+sourcesOf+` AND sidecar = 'a'`, "usage")
	w.want("refused in all", 5, `SELECT count(*) FROM record_refused WHERE reason <> ''`)
	w.want("endpoints without room", 1, `SELECT sum(requests)::bigint FROM endpoint_days WHERE endpoint = '(others)'`)
	w.want("calls of them", 1, `SELECT sum(requests)::bigint FROM call_hours WHERE endpoint = '(others)'`)
}

// TestRowsOutOfTime stores rows of sidecars whose clocks are wrong under the time of the copy, and counts them.
func TestRowsOutOfTime(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UTC()
	for n, at := range []time.Time{now.AddDate(-1, 0, 0), now.AddDate(20, 0, 0), now.Add(-27 * 24 * time.Hour), now} {
		w.send("usage", usageOf("one", int64(n+1), "ann", at, 1, 0))
		w.send("events", eventsOf("one", int64(n+1), at, 1))
	}
	w.drain()
	w.want("admitted", 4, admittedSum)
	w.want("events", 4, `SELECT count(*) FROM events`)
	w.want("moved usage", 12, `SELECT moved`+sourcesOf, "usage")
	w.want("moved events", 2, `SELECT moved`+sourcesOf, "events")
	w.want("27 days ago", 1, admittedSum+` AND minute < $1`, now.Add(-26*24*time.Hour))
}

// TestPartitionsAreMadeAhead lets a month begin.
func TestPartitionsAreMadeAhead(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2031, 1, 31, 23, 59, 0, 0, time.UTC)
	w.now = func() time.Time { return at }
	w.drain()
	const count = `SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`
	w.want("partitions", 4, count)
	at = at.Add(2 * time.Minute)
	w.send("events", eventsOf("one", 1, at, 3))
	w.send("usage", usageOf("one", 1, "ann", at, 3, 0))
	w.drain()
	w.want("partitions a month later", 5, count)
	w.want("events of the month", 3, `SELECT count(*) FROM events_2031_02`)
	w.want("a default partition", 0, `SELECT count(*) FROM pg_class WHERE pg_get_expr(relpartbound, oid) = 'DEFAULT'`)
	at = at.AddDate(0, 6, 0)
	w.drain()
	w.want("old minutes of endpoints", 0, `SELECT count(*) FROM endpoint_minutes`)
	w.want("old minutes of usage", 0, `SELECT count(*) FROM usage_minutes`)
	w.want("old minutes of tenants", 0, `SELECT count(*) FROM tenant_minutes`)
	w.want("old minutes of caches", 0, `SELECT count(*) FROM cache_minutes`)
	w.want("usage by hour is kept", 3, `SELECT sum(requests)::bigint FROM usage_hours WHERE rule = ''`)
	w.want("events are kept", 3, `SELECT count(*) FROM events`)
}

// TestStreamsThatBeginAnew flushes Redis, so that ids go back, and appends entries whose ids are those of before.
func TestStreamsThatBeginAnew(t *testing.T) {
	w := newWorld(t)
	now, key := time.Now(), w.cfg.Keys.Shared("usage")
	add := func(id string, e journal.Entry) { w.redis.Do(t, append([]string{"XADD", key, id}, e.Fields()...)...) }
	add("9000000000000-1", usageOf("one", 1, "ann", now, 1, 0))
	w.drain()
	w.redis.Do(t, "FLUSHALL")
	add("5-1", usageOf("one", 2, "ann", now, 10, 0))
	add("5-2", usageOf("one", 1, "ann", now, 1, 0)) // of a copy from before
	w.drain()
	w.redis.Kill(t)
	w.redis.Start(t)
	add("3-1", usageOf("one", 4, "ann", now, 100, 0))
	servers.Await(t, "the copy after a restart", func() error {
		_, err := w.round(context.Background(), w.conn)
		return err
	})
	w.drain()
	w.want("admitted", 111, admittedSum)
	w.want("missing", 1, `SELECT missing`+sourcesOf, "usage")
}

// TestAProblemEndsOnceItCopiesAgain stops Redis and starts it again. Run returns, so that the leader knows.
func TestAProblemEndsOnceItCopiesAgain(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	w.redis.Kill(t)
	err := w.Copier.Run(ctx, nil)
	if err == nil || w.Stats().Problem != err.Error() {
		t.Errorf("without Redis, Run returns %v and the problem is %q", err, w.Stats().Problem)
	}
	w.redis.Start(t)
	servers.Await(t, "the end of a run that copies again", func() error { return w.Copier.Run(ctx, nil) })
	if got := w.Stats().Problem; got != "" {
		t.Errorf("it copies again, and the problem is still %q", got)
	}
}

// TestAChangedSecretNamesAgain lets the names of users follow KEY_SECRET.
func TestAChangedSecretNamesAgain(t *testing.T) {
	w := newWorld(t)
	w.run(`INSERT INTO domains (name, created_by) VALUES ('api', 'ann')`)
	w.run(`ALTER TABLE profiles DISABLE TRIGGER ALL`)
	w.run(`INSERT INTO users (domain, name, updated_by) SELECT 'api', 'u' || n, 'x' FROM generate_series(1, 12000) AS
	  n`)
	w.run(`UPDATE users SET identity = 'user:' || name`)
	w.run(`INSERT INTO record_names (fingerprint) VALUES ('another')`)
	w.drain()
	w.want("names", 12000, `SELECT count(DISTINCT identity) FROM users WHERE identity <> 'user:' || name`)
	w.run(`INSERT INTO users (domain, name, updated_by) VALUES ('api', 'late', 'x')`)
	w.drain()
	w.want("the name of a new user", 1, `SELECT count(*) FROM users WHERE name = 'late' AND identity = $1`,
		w.cfg.Keys.Identity("user", "late"))
}
