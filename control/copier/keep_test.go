package copier

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/journal"
)

const day = 24 * time.Hour

// hourTables and dayTables are what is kept by hour and by day.
var (
	hourTables = []string{"usage_hours", "tenant_hours", "endpoint_hours", "call_hours", "identity_hours",
		"cache_hours"}
	dayTables = []string{"usage_days", "tenant_days", "endpoint_days", "cache_days"}
)

// TestWhatIsOldIsForgotten lets time pass. Each table loses what is older than it is kept, and nothing before.
func TestWhatIsOldIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.cfg.Keep = Keep{Hours: 100 * day, Days: 400 * day, Audit: 400 * day}
	at := time.Date(2031, 1, 10, 12, 0, 0, 0, time.UTC)
	w.now = func() time.Time { return at }
	w.send("usage", usageOf("one", 1, "ann", at, 3, 1))
	w.send("events", eventsOf("one", 1, at, 3))
	w.drain()
	w.run(`INSERT INTO audit (at, action, domain, kind, name, done_at)
	  SELECT $1::timestamptz + n * interval '1 second', 'set', 'api', 'user', 'ann', now()
	  FROM generate_series(1, 12000) n`, at)
	w.run(`INSERT INTO audit (at, action, domain, kind, name) VALUES ($1, 'set', 'api', 'user', 'open')`, at)
	for _, c := range []struct {
		after              time.Duration
		hours, days, audit int64
	}{{99 * day, 1, 1, 12001}, {150 * day, 0, 1, 12001}, {399 * day, 0, 1, 12001}, {800 * day, 0, 0, 1}} {
		at = time.Date(2031, 1, 10, 12, 0, 0, 0, time.UTC).Add(c.after)
		w.drain()
		for _, table := range hourTables {
			w.want(fmt.Sprintf("%s after %v", table, c.after), c.hours, `SELECT least(count(*), 1) FROM `+table)
		}
		for _, table := range dayTables {
			w.want(fmt.Sprintf("%s after %v", table, c.after), c.days, `SELECT least(count(*), 1) FROM `+table)
		}
		w.want(fmt.Sprintf("audit after %v", c.after), c.audit, `SELECT count(*) FROM audit`)
	}
	w.want("partitions of days", 2, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'usage_days'::regclass`)
	w.want("a line that is not in Redis yet", 1, `SELECT count(*) FROM audit WHERE name = 'open'`)
}

// TestWhoReadsKeepsAPartition holds a table that is read. Its partition goes when that has ended.
func TestWhoReadsKeepsAPartition(t *testing.T) {
	w := newWorld(t)
	at := time.Now()
	w.now = func() time.Time { return at }
	w.drain()
	at = at.Add(500 * day)
	w.run(`BEGIN`)
	w.run(`SELECT count(*) FROM usage_hours`)
	_, err := w.round(t.Context(), w.conn)
	if err == nil {
		t.Error("a partition is dropped although the table is read")
	}
	w.run(`COMMIT`)
	at = at.Add(remakeAfter)
	w.drain()
	w.want("partitions of this month and around", 1+monthsBack+monthsAhead,
		`SELECT count(*) FROM pg_inherits WHERE inhparent = 'usage_hours'::regclass`)
}

// TestCallsHaveABound lets a user choose many endpoints, over several entries. Sums stay exact.
func TestCallsHaveABound(t *testing.T) {
	w := newWorld(t)
	now, n := time.Now(), int64(0)
	w.keys()
	for entry := range int64(3) {
		var calls []journal.Row
		for range 70 {
			n++
			calls = append(calls, journal.Row{Minute: minuteOf(now), Domain: "api", Name: "user:eve",
				Endpoint: fmt.Sprintf("/%d", n), Outcome: "allowed", Requests: n, Cost: 1})
		}
		calls = append(calls, journal.Row{Minute: minuteOf(now), Domain: "api", Name: "user:eve", Endpoint: "/1",
			Outcome: "allowed", Requests: 1000, Cost: 1}, journal.Row{Minute: minuteOf(now), Domain: "api",
			Name: "user:ann", Endpoint: "/ann", Outcome: "allowed", Requests: 1})
		e := usageOf("one", entry+1, "ben", now, 1, 0)
		rows, err := journal.Unmarshal(e.Rows)
		if err != nil {
			t.Fatal(err)
		}
		rows.Calls = calls
		e.Rows = rows.Marshal()
		w.send("usage", e)
		w.drain()
	}
	w.want("endpoints of eve", mostCalled, `SELECT count(DISTINCT endpoint) FROM call_hours
	  WHERE identity = 'user:eve' AND endpoint <> '(others)'`)
	w.want("requests of eve", n*(n+1)/2+3000,
		`SELECT sum(requests)::bigint FROM call_hours WHERE identity = 'user:eve'`)
	w.want("requests of eve to /1", 3001, `SELECT sum(requests)::bigint FROM call_hours WHERE endpoint = '/1'`)
	w.want("requests of ann", 3, `SELECT sum(requests)::bigint FROM call_hours WHERE endpoint = '/ann'`)
}
