package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// faultRows are the rows of the fault matrix that are about PostgreSQL. The short ones are part of make test, all of
// make test-control.
var faultRows = []struct {
	id, name string
	short    bool
	run      func(*testing.T)
}{
	{id: "X21", name: "PostgreSQL away at the start", short: false, run: awayAtStart},
	{id: "X22", name: "PostgreSQL away at run time", short: false, run: awayAtRunTime},
	{id: "X23", name: "sessions killed", short: false, run: sessionsKilled},
	{id: "X23", name: "connections in a black hole", short: false, run: blackHole},
	{id: "X23", name: "leader stopped and deposed", short: false, run: deposedLeader},
	{id: "X24", name: "slow", short: false, run: slowDatabase},
	{id: "X24", name: "read-only", short: false, run: readOnly},
	{id: "X24", name: "disk full", short: true, run: diskFull},
	{id: "X24", name: "stream full", short: false, run: streamFull},
}

// TestFaultRows runs the rows.
func TestFaultRows(t *testing.T) {
	for _, row := range faultRows {
		if row.short || full {
			t.Run(row.id+" "+row.name, row.run)
		}
	}
}

// do runs a statement in the database.
func (w *world) do(sql string, args ...any) {
	w.t.Helper()
	conn := must.Get(pgx.Connect(context.Background(), w.postgres.URL))(w.t)
	defer conn.Close(context.Background())
	_, err := conn.Exec(context.Background(), sql, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// env is the environment of a control of the world.
func (w *world) env() []string {
	return []string{"CONTROL_DATABASE_URL=" + w.postgres.URL, "REDIS_URL=" + w.redis.Addr}
}

// awayAtStart starts a control and a sidecar while PostgreSQL is away. The control lives and is not ready, the sidecar
// decides; then PostgreSQL comes, with an empty database.
func awayAtStart(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 0, 0)
	w.postgres.Kill(t)
	w.sidecars = append(w.sidecars,
		servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s"))
	c := servers.LaunchControl(t, w.env()...)
	w.controls = append(w.controls, c)
	servers.Await(t, "word that it is not ready", func() error {
		err := c.Ready()
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("/readyz: %w", err)
		}
		return nil
	})
	if got := w.call(0, "GET", "/livez", nil); got.status != 200 {
		t.Errorf("/livez answers %d", got.status)
	}
	if got := w.call(0, "PUT", "/v1/domains/api/users/ann", map[string]any{}); got.status != 503 {
		t.Errorf("a change answers %d: %s", got.status, got.text)
	}
	if !w.ask(0, "ann") {
		t.Error("a sidecar without rules refuses")
	}
	w.postgres.Start(t)
	servers.Await(t, "readiness", c.Ready)
	w.must("POST", versions, map[string]any{"text": rulesOf(2)})
	w.awaitVersion(1)
}

// awayAtRunTime stops PostgreSQL under load: decisions continue, changes are refused, the metrics show how stale Redis
// may be. What sidecars record meanwhile is stored once PostgreSQL is back.
func awayAtRunTime(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 1, 1)
	w.must("POST", versions, map[string]any{"text": rulesOf(1_000_000)})
	w.awaitVersion(1)
	w.sendEntry("usage", used("one", 1, "ann", time.Now(), 1, 0))
	w.awaitRows(0, "usage", 3)
	w.postgres.Kill(t)
	sequence, asked := int64(1), 0
	for _, stale := range map[bool][]float64{false: {3}, true: {30, 60}}[full] {
		servers.Await(t, "the gauge of staleness", func() error {
			for range 10 {
				asked++
				if !w.ask(0, "ann") {
					t.Fatal("a request is refused")
				}
			}
			sequence++
			w.sendEntry("usage", used("one", sequence, "ann", time.Now(), 1, 0))
			m, err := servers.Scrape(strings.TrimPrefix(w.controls[0].URL, "http://"))
			if err == nil && m["spillway_control_stale_seconds"] < stale {
				err = fmt.Errorf("it is %v", m["spillway_control_stale_seconds"])
			}
			return err
		})
	}
	if got := w.call(0, "PUT", "/v1/domains/api/users/ann", map[string]any{}); got.status != 503 {
		t.Errorf("a change answers %d: %s", got.status, got.text)
	}
	if got := w.call(0, "GET", "/v1/domains/api/users/ann/usage", nil); got.status != 503 {
		t.Errorf("a question answers %d: %s", got.status, got.text)
	}
	w.postgres.Start(t)
	w.awaitRows(0, "usage", 3*sequence)
	w.must("PUT", "/v1/domains/api/users/dora", map[string]any{"quota_hour": 3})
	servers.Await(t, "a change after it", w.recordThere)
	if got := w.query(`SELECT sum(requests)::bigint FROM usage_days WHERE outcome = 'allowed'`); got != sequence {
		t.Errorf("%d requests are stored, want %d", got, sequence)
	}
	t.Logf("%d requests were decided while PostgreSQL was away", asked)
}

// awaitProbes waits until Redis has the profiles of all changes.
func (w *world) awaitProbes(want int) {
	w.t.Helper()
	servers.Await(w.t, "all changes in Redis", func() error {
		keys := fmt.Sprint(w.redis.Do(w.t, "KEYS", "rec1:*probe-*"))
		if n := strings.Count(keys, "probe-"); n != want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

const addProbe = `INSERT INTO users (domain, name, quota_hour, updated_by) SELECT 'api', 'probe-' || n, 5, 'test'
  FROM generate_series($1::int, $2::int) AS n`

// sessionsKilled ends the sessions of the leader, that which listens among them, while 1,000 changes are made: none is
// missed.
func sessionsKilled(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 2, 0)
	w.do(`INSERT INTO domains (name, created_by) VALUES ('api', 'test')`)
	const changes, step = 1000, 25
	for n := 1; n <= changes; n += step {
		w.do(addProbe, n, n+step-1)
		if n%(4*step) == 1 {
			w.do(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
			  AND pid <> pg_backend_pid()`)
		}
	}
	w.awaitProbes(changes)
}

// throughProxy starts a control that reaches PostgreSQL through a proxy.
func (w *world) throughProxy() *servers.Proxy {
	w.t.Helper()
	u := must.Get(url.Parse(w.postgres.URL))(w.t)
	proxy := servers.StartProxy(w.t, u.Host)
	u.Host = proxy.Addr
	w.controls = append(w.controls,
		servers.StartControl(w.t, "CONTROL_DATABASE_URL="+u.String(), "REDIS_URL="+w.redis.Addr))
	return proxy
}

// blackHole swallows all that the control's connections carry, while 1,000 changes are made. The connections stay dead;
// new ones work.
func blackHole(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 0, 0)
	proxy := w.throughProxy()
	w.do(`INSERT INTO domains (name, created_by) VALUES ('api', 'test')`)
	w.do(addProbe, 1, 500)
	w.awaitProbes(500)
	proxy.Set(servers.Fault{Mode: servers.BlackHole})
	w.do(addProbe, 501, 1000)
	w.sendEntry("events", happened("one", 1, time.Now(), 10))
	servers.Await(t, "dead connections", func() error {
		if proxy.Dead() == 0 {
			return errors.New("none")
		}
		return nil
	})
	proxy.Set(servers.Fault{})
	w.awaitProbes(1000)
	w.awaitRows(0, "events", 10)
}

// balance compares what sidecars have sent with what became of it: sent = stored + queued, in rows of entries of a
// given number of rows.
func (w *world) balance(stream string, sent, rows int64) {
	w.t.Helper()
	var stored, queued int64
	servers.Await(w.t, "a moment without a copy", func() error {
		before := w.query(`SELECT coalesce(sum(rows), 0)::bigint FROM record_sources WHERE stream = $1`, stream)
		queued, _ = strconv.ParseInt(fmt.Sprint(w.redis.Do(w.t, "XLEN", recordKeys.Shared(stream))), 10, 64)
		stored = w.query(`SELECT coalesce(sum(rows), 0)::bigint FROM record_sources WHERE stream = $1`, stream)
		if before != stored || stored+queued*rows != sent {
			return fmt.Errorf("%d and then %d stored, %d queued, %d sent", before, stored, queued*rows, sent)
		}
		return nil
	})
	if have := w.query(`SELECT count(*) FROM events`); have != stored {
		w.t.Errorf("%d events are in the table, and %d are noted", have, stored)
	}
}

// faulty sends events before, during and after a fault of the database, and compares the sums. Memory stays bounded.
func (w *world) faulty(begin, end func()) {
	w.t.Helper()
	const rows = 50
	sequence := int64(0)
	send := func(count int) {
		for range count {
			sequence++
			e := happened("one", sequence, time.Now(), rows)
			e.Dropped = 2
			w.sendEntry("events", e)
		}
	}
	send(20)
	w.awaitRows(0, "events", 20*rows)
	before := w.memory()
	begin()
	send(400)
	w.awaitFailure()
	w.balance("events", sequence*rows, rows)
	end()
	send(20)
	w.awaitRows(0, "events", sequence*rows)
	w.balance("events", sequence*rows, rows)
	if dropped := w.query(`SELECT sum(dropped)::bigint FROM record_sources`); dropped != 2*sequence {
		w.t.Errorf("%d rows are noted as dropped, want %d", dropped, 2*sequence)
	}
	if missing := w.query(`SELECT sum(missing)::bigint FROM record_sources`); missing != 0 {
		w.t.Errorf("%d entries are missing", missing)
	}
	if grown := w.memory() - before; grown > 32<<10 && !servers.Race {
		w.t.Errorf("the control has grown by %d KiB", grown)
	}
}

// awaitFailure waits until the copy has failed.
func (w *world) awaitFailure() {
	w.t.Helper()
	servers.Await(w.t, "a failure of the copy", func() error {
		m, err := servers.Scrape(strings.TrimPrefix(w.controls[0].URL, "http://"))
		if err == nil && m.Sum("spillway_control_record_failures_total") == 0 {
			err = errors.New("a failure is not counted yet")
		}
		return err
	})
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory is what a control takes, in KiB.
func (w *world) memory() int64 {
	w.t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", w.controls[0].Process.Process.Pid)))(w.t)
	n, _ := strconv.ParseInt(resident.FindStringSubmatch(string(text))[1], 10, 64)
	return n
}

// readOnly makes the database refuse all writes, as one that follows another does (25006).
func readOnly(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 1, 0)
	w.faulty(func() {
		w.do(`ALTER SYSTEM SET default_transaction_read_only = on`)
		w.do(`SELECT pg_reload_conf()`)
		servers.Await(t, "a database that refuses writes", func() error {
			if got := w.call(0, "PUT", "/v1/domains/api/users/ann", map[string]any{}, "If-Match",
				"*"); got.status != 503 {
				return errors.New(got.text)
			}
			return nil
		})
	}, func() {
		w.do(`ALTER SYSTEM RESET default_transaction_read_only`)
		w.do(`SELECT pg_reload_conf()`)
	})
}

// diskFull makes the database refuse all rows as one without room does (53100).
func diskFull(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 1, 0)
	w.do(`CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`)
	w.faulty(func() { w.do(`CREATE TRIGGER no_room BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_room()`) },
		func() { w.do(`DROP TRIGGER no_room ON events`) })
}

// slowDatabase makes each answer of the database 5 seconds late.
func slowDatabase(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 0, 0)
	proxy := w.throughProxy()
	const rows = 50
	send := func(from, to int64) {
		for n := from; n <= to; n++ {
			w.sendEntry("events", happened("one", n, time.Now(), rows))
		}
	}
	send(1, 20)
	w.awaitRows(0, "events", 20*rows)
	before := w.memory()
	proxy.Set(servers.Fault{Mode: servers.Latency, Delay: 5 * time.Second})
	send(21, 420)
	w.balance("events", 420*rows, rows)
	proxy.Set(servers.Fault{})
	w.awaitRows(0, "events", 420*rows)
	w.balance("events", 420*rows, rows)
	if grown := w.memory() - before; grown > 32<<10 && !servers.Race {
		t.Errorf("the control has grown by %d KiB", grown)
	}
}

// streamFull lets the stream drop entries while the database refuses them: each is counted as missing once a later one
// is stored.
func streamFull(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 1, 0)
	w.do(`CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'
	  USING ERRCODE = '53100'; END $$`)
	w.do(`CREATE TRIGGER no_room BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_room()`)
	const sent, kept, rows = 300, 100, 10
	for n := int64(1); n <= sent; n++ {
		e := happened("one", n, time.Now(), rows)
		w.redis.Do(t, append([]string{"XADD", recordKeys.Shared(journal.EventsStream), "MAXLEN", strconv.Itoa(kept),
			"*"}, e.Fields()...)...)
	}
	w.awaitFailure()
	w.do(`DROP TRIGGER no_room ON events`)
	w.awaitRows(0, "events", kept*rows)
	if missing := w.query(`SELECT missing FROM record_sources`); missing != sent-kept {
		t.Errorf("%d entries are missing, want %d", missing, sent-kept)
	}
}

// deposedLeader starts two controls, and stops the one that copies so that it cannot know that it was deposed. The
// other one takes over, and the first one writes nothing when it continues.
func deposedLeader(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 2, 0)
	copier := -1
	servers.Await(t, "one that copies", func() error {
		n := 0
		for i := range w.controls {
			if w.call(i, "GET", "/v1/record", nil).body["copies"] == true {
				n, copier = n+1, i
			}
		}
		if n != 1 {
			return fmt.Errorf("%d copy", n)
		}
		return nil
	})
	w.controls[copier].Hang(t)
	w.do(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()`)
	for n := int64(1); n <= 50; n++ {
		w.sendEntry("events", happened("one", n, time.Now(), 20))
	}
	w.awaitRows(1-copier, "events", 1000)
	w.controls[copier].Send(t, syscall.SIGCONT)
	for n := int64(51); n <= 100; n++ {
		w.sendEntry("events", happened("one", n, time.Now(), 20))
	}
	w.awaitRows(1-copier, "events", 2000)
	if got := w.query(`SELECT count(*) FROM events`); got != 2000 {
		t.Errorf("there are %d events, want 2000", got)
	}
	servers.Await(t, "one that copies", func() error {
		answers := []string{}
		for i := range w.controls {
			answers = append(answers, fmt.Sprint(w.call(i, "GET", "/v1/record", nil).body["copies"]))
		}
		if strings.Count(strings.Join(answers, " "), "true") != 1 {
			return fmt.Errorf("%v copy", answers)
		}
		return nil
	})
}
