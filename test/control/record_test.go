package control_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// full is whether the long rows run: the tag full adds them.
const full = servers.Full

// recordKeys are those of a world without a secret.
var recordKeys = keys.NewNames("", nil)

// send appends an entry to a stream of the record, as a sidecar does.
func (w *world) sendEntry(stream string, e journal.Entry) {
	w.t.Helper()
	w.redis.Do(w.t, append([]string{"XADD", recordKeys.Shared(stream), "*"}, e.Fields()...)...)
}

// used is an entry of usage: a user was admitted and refused so often, within a minute.
func used(sidecar string, sequence int64, user string, at time.Time, admitted, refused int64) journal.Entry {
	u := &journal.Rows{}
	for _, one := range []struct {
		outcome  string
		requests int64
	}{{"allowed", admitted}, {"refused", refused}} {
		if one.requests > 0 {
			u.Identities = append(u.Identities, journal.Row{Minute: at.Unix() / 60, Domain: "api",
				Name: recordKeys.Identity("user",
					user), Outcome: one.outcome, Requests: one.requests, Cost: one.requests})
			row := journal.Row{Minute: at.Unix() / 60, Domain: "api", Rule: "per-user", Name: "/orders",
				Outcome: one.outcome, Requests: one.requests, Cost: one.requests}
			row.Latency.Add(2*time.Millisecond, one.requests)
			u.Endpoints = append(u.Endpoints, row)
		}
	}
	u.Caches = []journal.Row{{Minute: at.Unix() / 60, Domain: "api", Name: "denials", Hits: 9, Misses: 1}}
	return journal.Entry{Sidecar: sidecar, Sequence: sequence, Region: "eu", Rows: u.Marshal()}
}

// happened is an entry of events.
func happened(sidecar string, sequence int64, at time.Time, count int) journal.Entry {
	var events []journal.Event
	for n := range count {
		events = append(events, journal.Event{
			At: at.UnixMicro() + int64(n), Domain: "api", Outcome: "refused", Rule: "per-user",
			Identity: recordKeys.Identity("user", "u"+strconv.Itoa(n%10)),
			Tenant:   recordKeys.Identity("tenant", []string{"acme", "umbrella"}[n%2]), IP: "192.0.2.1",
			Method: "GET", Endpoint: "/orders", Count: 5, Limit: 5, Cost: 1, Status: 429, RetryAfter: 2, Latency: 300,
			Weight: 1,
		})
	}
	return journal.Entry{Sidecar: sidecar, Sequence: sequence, Region: "eu",
		Rows: (&journal.Rows{Events: events}).Marshal()}
}

// awaitRows waits until the record has so many rows of a stream, with so many in the queue.
func (w *world) awaitRows(control int, stream string, want int64) {
	w.t.Helper()
	servers.Await(w.t, fmt.Sprintf("%d rows of %s", want, stream), func() error {
		got, err := w.rowsOf(control, stream)
		if err == nil && got != want {
			err = fmt.Errorf("there are %d", got)
		}
		return err
	})
}

// rowsOf is how many rows of a stream are stored, as a control reports it.
func (w *world) rowsOf(control int, stream string) (int64, error) {
	got, err := try(w.controls[control].URL, "GET", "/v1/record", nil)
	if err != nil {
		return 0, err
	}
	streams, _ := got.body["streams"].([]any)
	for _, one := range streams {
		s, _ := one.(map[string]any)
		if s["stream"] == stream {
			rows, _ := s["rows"].(float64)
			return int64(rows), nil
		}
	}
	return 0, errors.New(got.text)
}

// query reads one number of the database.
func (w *world) query(sql string, args ...any) (n int64) {
	w.t.Helper()
	conn := must.Get(pgx.Connect(context.Background(), w.postgres.URL))(w.t)
	defer conn.Close(context.Background())
	err := conn.QueryRow(context.Background(), sql, args...).Scan(&n)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// TestTheRecordAnswers appends what sidecars append, and asks the control about it by its API, its metrics and the
// command.
func TestTheRecordAnswers(t *testing.T) {
	w := newWorld(t, 1, 0, "CONTROL_ARCHIVE="+t.TempDir())
	servers.Inside(t, 30*time.Minute, 50*time.Second) // days in Kolkata begin at 18:30 UTC
	now := time.Now().UTC()
	const d = "/v1/domains/api"
	w.must("POST", versions, map[string]any{"text": "timezone: Asia/Kolkata\n" + rulesOf(5)})
	w.must("PUT", d+"/users/ann", map[string]any{"quota_day": 100, "quota_month": 1000})
	w.sendEntry("usage", used("one", 1, "ann", now, 30, 4))
	w.sendEntry("usage", used("one", 1, "ann", now, 30, 4)) // its reply was lost
	w.sendEntry("usage", used("two", 1, "ann", now, 10, 0))
	w.sendEntry("usage", journal.Entry{Sidecar: "two", Sequence: 2, Rows: []byte("poison")})
	w.sendEntry("usage", journal.Entry{Sidecar: "three", Sequence: 1, Rows: (&journal.Rows{Caches: []journal.Row{
		{Minute: now.Unix() / 60, Domain: "api", Name: "tokens", Hits: 3, Misses: 2},
		{Minute: now.Unix() / 60, Domain: "other", Name: "tokens", Hits: 100, Misses: 200},
	}}).Marshal()})
	w.sendEntry("events", happened("one", 1, now, 25))
	w.awaitRows(0, "usage", 10)
	w.awaitRows(0, "events", 25)
	usage := w.must("GET", d+"/users/ann/usage", nil)
	today, _ := usage.body["today"].(map[string]any)
	if today["admitted"] != 40.0 || today["refused"] != 4.0 || today["left"] != 60.0 ||
		usage.body["timezone"] != "Asia/Kolkata" || usage.body["exceeded_count"] != 4.0 {
		t.Errorf("usage against quota is %s, want 40 admitted, 4 refused, 60 left", usage.text)
	}
	if month, _ := usage.body["month"].(map[string]any); month["left"] != 960.0 {
		t.Errorf("this month is %s, want 960 left", usage.text)
	}
	for _, step := range []string{"minute", "hour", "day"} {
		for _, who := range []string{"user=ann", "identity=user:ann", "rule=per-user"} {
			got := w.must("GET", d+"/usage?step="+step+"&"+who, nil)
			if got.body["admitted"] != 40.0 || got.body["refused"] != 4.0 || got.body["cost"] != 40.0 {
				t.Errorf("usage of %s by %s is %s", who, step, got.text)
			}
		}
	}
	w.latencies(t, d)
	w.events(t, d)
	got := w.must("GET", d+"/statistics?by=rule&step=total", nil)
	rows, _ := got.body["statistics"].([]any)
	first, _ := rows[0].(map[string]any)
	if p99, _ := first["p99"].(float64); first["name"] != "per-user" || first["requests"] != 44.0 || p99 < 1.9 ||
		p99 > 2.1 {
		t.Errorf("the statistics are %s, want 44 requests with p99 of 2 ms", got.text)
	}
	if got := w.must("GET", d+"/caches?step=day", nil); len(got.body["caches"].([]any)) != 2 ||
		!strings.Contains(got.text, `"hits": 18`) || !strings.Contains(got.text, `"hits": 3,`) {
		t.Errorf("the caches are %s, want 18 and 3 hits, and those of no other domain", got.text)
	}
	w.metricsAndCommand(t)
}

// latencies asks for quantiles of one identity: u3 has three events of 0.3 ms each.
func (w *world) latencies(t *testing.T, d string) {
	t.Helper()
	near := func(l any) bool {
		of, _ := l.(map[string]any)
		for _, q := range []string{"p50", "p95", "p99"} {
			if ms, _ := of[q].(float64); ms < 0.285 || ms > 0.315 {
				return false
			}
		}
		return of["samples"] == 3.0
	}
	for _, step := range []string{"minute", "hour", "day"} {
		got := w.must("GET", d+"/usage?user=u3&step="+step, nil)
		points, _ := got.body["latencies"].([]any)
		if len(points) != 1 || !near(points[0]) || !near(got.body["latency"]) {
			t.Errorf("by %s the latencies are %s, want one point of 3 events with 0.3 ms", step, got.text)
		}
	}
	for _, other := range []string{"", "user=u3&rule=per-user"} {
		if got := w.must("GET", d+"/usage?"+other, nil); got.body["latency"] != nil {
			t.Errorf("%q has the latency %v of no one identity", other, got.body["latency"])
		}
	}
	w.must("PUT", d+"/users/u3", map[string]any{"quota_month": 1000})
	month, _ := w.must("GET", d+"/users/u3/usage", nil).body["month"].(map[string]any)
	if !near(month["latency"]) {
		t.Errorf("the latency of the month is %v", month["latency"])
	}
}

// events reads the events page by page, and with filters.
func (w *world) events(t *testing.T, d string) {
	t.Helper()
	seen, cursor, pages := map[string]bool{}, "", 0
	for more := true; more; pages++ {
		got := w.must("GET", d+"/events?limit=10"+cursor, nil)
		list, _ := got.body["events"].([]any)
		for _, one := range list {
			e, _ := one.(map[string]any)
			seen[fmt.Sprint(e["sidecar"], e["sequence"], e["place"])] = true
		}
		next, _ := got.body["next"].(string)
		cursor, more = "&cursor="+next, next != ""
	}
	if len(seen) != 25 || pages != 3 {
		t.Errorf("%d pages have %d events, want 3 with 25", pages, len(seen))
	}
	for filter, want := range map[string]int{"user=u3": 3, "user=u9": 2, "tenant=acme": 13, "identity=tenant:umbrella": 12,
		"tenant=ac": 0, "ip=192.0.2.1": 25, "rule=other": 0, "to=2020-01-01": 0,
		"outcome=refused&method=GET&endpoint=/orders": 25} {
		got := w.must("GET", d+"/events?"+filter, nil)
		if list, _ := got.body["events"].([]any); len(list) != want {
			t.Errorf("%s finds %d, want %d", filter, len(list), want)
		}
	}
	for wrong, status := range map[string]int{
		"/events?from=yesterday": 400, "/usage?step=week": 400, "/statistics?by=planet": 400, "/events?cursor=x": 422,
		"/usage?user=a&identity=b": 422, "/usage?from=2000-01-01&step=minute": 422,
		"/events?from=2026-02-01&to=2026-01-01": 422,
	} {
		if got := w.call(0, "GET", d+wrong, nil); got.status != status {
			t.Errorf("%s answers %d, want %d: %s", wrong, got.status, status, got.text)
		}
	}
}

// metricsAndCommand scrapes the control, and runs the command.
func (w *world) metricsAndCommand(t *testing.T) {
	t.Helper()
	var m servers.Metrics
	var err error
	servers.Await(t, "all changes in Redis", func() error {
		m, err = servers.Scrape(strings.TrimPrefix(w.controls[0].URL, "http://"))
		if err == nil && m.Sum("spillway_control_waiting_changes") > 0 {
			err = fmt.Errorf("%d changes are not", m.Sum("spillway_control_waiting_changes"))
		}
		return err
	})
	for name, want := range map[string]int64{
		"record_rows_total": 35, "record_entries_total": 4, "record_again_total": 1,
		"record_refused_total": 1, "record_missing_total": 0, "leads": 1, "record_copies": 1,
		"record_queued_entries": 0,
		"erasures_open":         0} {
		if got := m.Sum("spillway_control_" + name); got != want {
			t.Errorf("spillway_control_%s is %d, want %d", name, got, want)
		}
	}
	servers.Await(t, "a run of the archive", func() error {
		m, err = servers.Scrape(strings.TrimPrefix(w.controls[0].URL, "http://"))
		if err == nil && m.Sum("spillway_control_archive_runs_total") == 0 {
			err = fmt.Errorf("%d runs failed", m.Sum("spillway_control_archive_failures_total"))
		}
		return err
	})
	if last := time.Unix(m.Sum("spillway_control_archive_last_run_timestamp_seconds"),
		0); time.Since(last) > time.Hour || m.Sum("spillway_control_archive_partitions_total") != 0 {
		t.Errorf("the last run of the archive was at %v", last)
	}
	s := &shell{t: t, control: w.controls[0].URL}
	s.says(0, "usage show ann --domain api", "this month", "60")
	s.says(0, "usage show ann --domain api --output json", `"left": 960`)
	s.says(0, "usage list --domain api --step day", "40 admitted")
	s.says(0, "usage show u3 --domain api", "decisions this month took p50 0.29 ms, p95 –, p99 –, by 3 events")
	s.says(0, "usage list --domain api --user u3", "decisions of this time took p50 0.29 ms")
	s.says(6, "usage show ghost --domain api", `there is no user "ghost"`)
	s.says(0, "events list --domain api --outcome refused --limit 25", "per-user", "user:u3", "GET /orders", "429")
	s.says(0, "events list --domain api --tenant umbrella", "user:u3", "tenant:umbrella")
}
