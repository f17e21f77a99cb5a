package copier

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/spillway-mesh/spillway/control/migrations"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestMain runs the tests, or, as a child of one, a copier that kills itself at a step.
func TestMain(m *testing.M) {
	if os.Getenv("COPIER_DATABASE") != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// child copies until all streams are empty, and dies at the n-th time that the step is done.
func child() {
	step := os.Getenv("COPIER_DIES_AT")
	left := must.Value(strconv.Atoi(os.Getenv("COPIER_DIES_TIME")))
	r := copierOf(os.Getenv("COPIER_DATABASE"), os.Getenv("COPIER_REDIS"))
	r.passed = func(done string) {
		if done != step {
			return
		}
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := r.cfg.Connect(ctx)
	if err != nil {
		panic(err)
	}
	for more := true; more && err == nil; {
		more, err = r.round(ctx, conn)
	}
	fmt.Println("ended", err)
}

const secret = "a secret of the tests"

func copierOf(database, address string) *Copier {
	servers := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{address}}})
	return New(Config{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, database) },
		Redis:   servers, Keys: keys.NewNames("", []byte(secret)), Log: slog.New(slog.DiscardHandler),
		Keep: Keep{Hours: 400 * day, Days: 2557 * day, Audit: 2557 * day},
	})
}

// world is a copier with a real PostgreSQL and a real Redis.
type world struct {
	*testing.T
	*Copier
	postgres *servers.Postgres
	redis    *servers.Redis
	db       *pgx.Conn // of the test
	conn     *pgx.Conn // of the copier
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, postgres: servers.Database(t), redis: servers.StartRedis(t)}
	w.migrate()
	w.Copier = copierOf(w.postgres.URL, w.redis.Addr)
	t.Cleanup(w.cfg.Redis.Close)
	w.db, w.conn = w.connect(), w.connect()
	return w
}

func (w *world) migrate() {
	w.Helper()
	db := stdlib.OpenDB(*must.Value(pgx.ParseConfig(w.postgres.URL)))
	defer db.Close()
	provider := must.Value(goose.NewProvider(goose.DialectPostgres, db, migrations.Files))
	must.Value(provider.Up(context.Background()))
}

func (w *world) connect() *pgx.Conn {
	w.Helper()
	conn := must.Get(pgx.Connect(context.Background(), w.postgres.URL))(w)
	w.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// send appends an entry as a sidecar does.
func (w *world) send(stream string, e journal.Entry) {
	w.Helper()
	w.redis.Do(w, append([]string{"XADD", w.cfg.Keys.Shared(stream), "*"}, e.Fields()...)...)
}

// drain copies until the streams are empty.
func (w *world) drain() {
	w.Helper()
	for more := true; more; {
		more = must.Get(w.round(context.Background(), w.conn))(w)
	}
}

// keys makes the users ann and ben, each with a key. Sidecars see the id of the first one, and the second key itself.
func (w *world) keys() {
	w.Helper()
	w.run(`INSERT INTO domains (name, created_by) VALUES ('api', 'ann')`)
	w.run(`INSERT INTO users (domain, name, updated_by) VALUES ('api', 'ann', 'x'), ('api', 'ben', 'x')`)
	w.run(`INSERT INTO api_keys (domain, id, digest, prefix, user_name, created_by)
	  VALUES ('api', 'key of ann', sha256('a'), 'spw_abcdef', 'ann', 'x'), ('api', 'b', sha256('key of ben'),
	  'spw_abcdef', 'ben', 'x')`)
	w.run(`UPDATE audit SET done_at = now() WHERE done_at IS NULL`)
}

// keyTotal reads what a key was used for.
const keyTotal = `SELECT total_requests FROM api_keys WHERE user_name = $1`

// number reads one number.
func (w *world) number(sql string, args ...any) (n int64) {
	w.Helper()
	err := w.db.QueryRow(context.Background(), sql, args...).Scan(&n)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (w *world) run(sql string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(context.Background(), sql, args...)
	if err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// want compares a number of the database.
func (w *world) want(what string, want int64, sql string, args ...any) {
	w.Helper()
	if got := w.number(sql, args...); got != want {
		w.Errorf("%s: %d, want %d", what, got, want)
	}
}

// dies runs a copier as a process of its own that kills itself at a step, and returns whether it came there.
func (w *world) dies(step string, time int) bool {
	w.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "COPIER_DATABASE="+w.postgres.URL, "COPIER_REDIS="+w.redis.Addr,
		"COPIER_DIES_AT="+step, "COPIER_DIES_TIME="+strconv.Itoa(time))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		w.Fatalf("the copier ended by %v: %s", err, out)
	}
	return true
}

// minuteOf is a minute of the record.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// usageOf is an entry in which a user was admitted so often, within a minute.
func usageOf(sidecar string, sequence int64, user string, at time.Time, admitted, refused int64) journal.Entry {
	keys := keys.NewNames("", []byte(secret))
	id := keys.Identity("user", user)
	u := &journal.Rows{
		Identities: []journal.Row{{Minute: minuteOf(at), Domain: "api", Name: id, Outcome: "allowed",
			Requests: admitted, Cost: 2 * admitted}},
		Tenants: []journal.Row{{Minute: minuteOf(at), Domain: "api", Name: keys.Identity("tenant", "acme"),
			Outcome: "allowed", Requests: admitted, Cost: 2 * admitted}},
		Calls: []journal.Row{{Minute: minuteOf(at) / 60 * 60, Domain: "api", Name: id, Endpoint: "GET /",
			Outcome: "allowed", Requests: admitted, Cost: 2 * admitted}},
		Endpoints: []journal.Row{{Minute: minuteOf(at), Domain: "api", Rule: "per-user", Name: "GET /",
			Outcome: "allowed", Requests: admitted, Cost: 2 * admitted}},
		Caches: []journal.Row{{Minute: minuteOf(at), Domain: "api", Name: "denials", Hits: 3, Misses: 1}},
	}
	u.Endpoints[0].Latency.Add(time.Millisecond, admitted)
	u.Keys = []journal.Row{{Minute: minuteOf(at), Domain: "api",
		Name: keys.Identity(journal.KeyKind, journal.KeyOf("key of "+user)), Requests: admitted +
			refused, Refused: refused}}
	if refused > 0 {
		u.Identities = append(u.Identities, journal.Row{Minute: minuteOf(at), Domain: "api", Name: id,
			Outcome: "refused", Requests: refused, Cost: 2 * refused})
	}
	return journal.Entry{Sidecar: sidecar, Sequence: sequence, Region: "eu", Rows: u.Marshal()}
}

// eventsOf is an entry with events.
func eventsOf(sidecar string, sequence int64, at time.Time, count int) journal.Entry {
	var events []journal.Event
	for n := range count {
		events = append(events, journal.Event{
			At: at.UnixMicro() + int64(n), Domain: "api", Outcome: "refused", Rule: "per-user", Identity: "user:" +
				strconv.Itoa(n%100), IP: "192.0.2.1", Method: "GET", Endpoint: "/orders/" + strconv.Itoa(n%7),
			Count: 10, Limit: 10, Cost: 1, Status: 429, RetryAfter: 1.5, Latency: 250, Weight: 1,
		})
	}
	return journal.Entry{Sidecar: sidecar, Sequence: sequence, Region: "eu",
		Rows: (&journal.Rows{Events: events}).Marshal()}
}
