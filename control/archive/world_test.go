package archive

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/pressly/goose/v3"

	"github.com/spillway-mesh/spillway/control/migrations"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// full is whether the long rows run, too: the tag full adds them.
const full = servers.Full

// TestMain runs the tests, or where a test started this program as a child, the archiver that is killed at a step.
func TestMain(m *testing.M) {
	if os.Getenv("ARCHIVE_CHILD") != "" {
		os.Exit(child())
	}
	os.Exit(servers.Main(m))
}

// today is the day of the tests: events of May are old enough, those of August are not.
var today = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// setup is an Archiver on a database and a store.
func setup(url string, place Place) (*Archiver, error) {
	store, err := OpenStore(place)
	if err != nil {
		return nil, err
	}
	a, err := New(Config{DatabaseURL: url, Store: store, KeepEvents: 90 * 24 * time.Hour,
		KeepArchives: 7 * 365 * 24 * time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		a.now = func() time.Time { return today }
	}
	return a, err
}

// child archives, or erases ann, and kills this process after so many steps.
func child() int {
	place := Place{At: os.Getenv("ARCHIVE_AT"), Endpoint: os.Getenv("ARCHIVE_ENDPOINT"), AccessKey: "key",
		SecretKey: "secret"}
	a, err := setup(os.Getenv("ARCHIVE_CHILD"), place)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	left, _ := strconv.Atoi(os.Getenv("ARCHIVE_STEPS"))
	a.step = func(done string) {
		left--
		if left == 0 {
			fmt.Println("killed after:", done)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if os.Getenv("ARCHIVE_ERASE") != "" {
		err = a.Alone(context.Background(), func(ctx context.Context) error { _, err := a.Erase(ctx, ann); return err })
	} else {
		_, err = a.Once(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return 3
	}
	return 0
}

// ann is the person that tests erase.
var ann = Person{Domain: "shop", Identities: []string{"user:ann"}, IPs: []string{"198.51.100.7"},
	APIKeys: []string{"spw_annkey"}}

// world is a database with events, and a store.
type world struct {
	t     testing.TB
	url   string
	place Place
	a     *Archiver
}

// database makes a migrated database of that name.
func database(t testing.TB, p *servers.Postgres, name string) string {
	t.Helper()
	ctx := context.Background()
	conn := must.Get(pgx.Connect(ctx, p.URL))(t)
	defer conn.Close(ctx)
	must.Get(conn.Exec(ctx, "CREATE DATABASE "+name))(t)
	url := strings.Replace(p.URL, "/postgres?", "/"+name+"?", 1)
	settings := must.Get(pgx.ParseConfig(url))(t)
	db := stdlib.OpenDB(*settings)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.Files)
	if err == nil {
		_, err = provider.Up(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// newWorld makes a database and a store: a folder, or a bucket.
func newWorld(t testing.TB, p *servers.Postgres, name string, far bool) *world {
	t.Helper()
	w := &world{t: t, url: database(t, p, name), place: Place{At: t.TempDir()}}
	if far {
		backend := s3mem.New()
		must.Do(t, backend.CreateBucket("events"))
		service := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(service.Close)
		w.place = Place{At: "s3://events/of/spillway", Endpoint: service.URL, AccessKey: "key", SecretKey: "secret"}
	}
	w.a = must.Get(setup(w.url, w.place))(t)
	t.Cleanup(w.a.Close)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.a.pool.Exec(context.Background(), sql, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// partition makes the partition of a month, as the copier does.
func (w *world) partition(month string) {
	w.t.Helper()
	first := must.Get(time.Parse(monthLayout, month))(w.t)
	w.exec(fmt.Sprintf(`CREATE TABLE events_%s PARTITION OF events FOR VALUES FROM ('%s 00:00:00+00') TO ('%s
	  00:00:00+00')`,
		strings.ReplaceAll(month, "-", "_"), first.Format(dayLayout), first.AddDate(0, 1, 0).Format(dayLayout)))
}

// fill adds events to some days of a month, of two regions, from a number on.
func (w *world) fill(month string, days, perDay int, sidecar string) {
	w.t.Helper()
	w.exec(`INSERT INTO events SELECT $1::timestamptz + d * interval '1 day' + n * interval '86400 seconds' / $3::int,
	  $4, d * $3::int + n + 1, 0, CASE WHEN n % 5 = 0 THEN 'api' ELSE 'shop' END,
	  CASE WHEN n % 3 = 0 THEN 'refused' ELSE 'allowed' END, 'per-user', CASE WHEN n % 10 = 1 THEN 'user:ann' ELSE
	  'user:u' || n % 1000 END, CASE WHEN n % 11 = 0 THEN 'spw_annkey' ELSE '' END,
	  CASE WHEN n % 13 = 0 THEN '198.51.100.7' ELSE '192.0.2.' || n % 250 END, 'GET', '/items/' || n % 50, n % 100,
	  100, 1 + n % 3, CASE WHEN n % 3 = 0 THEN 429 ELSE 200 END, (n % 60) / 7.0, n / 1000.0,
	  CASE WHEN n % 2 = 0 THEN 'eu/west' ELSE '' END, 1 + n % 100,
	  CASE WHEN n % 10 = 2 THEN 'tenant:acme' ELSE '' END FROM generate_series(0, $2::int - 1) AS d,
	  generate_series(0, $3::int - 1) AS n`,
		month+"-01 00:00:00+00", days, perDay, sidecar)
}

// tables is how many rows of a table there are, and a digest of them.
func (w *world) rowsOf(table string) state {
	w.t.Helper()
	var s state
	must.Do(w.t, w.a.pool.QueryRow(context.Background(),
		`SELECT count(*), coalesce(sum(hashtextextended(e::text, 0)::numeric), 0)::text FROM `+table+` AS
		  e`).Scan(&s.rows, &s.digest))
	return s
}

// whole is all events, wherever they are: those of the database, and those of the archive that are loaded back.
func (w *world) whole() state {
	w.t.Helper()
	ctx := context.Background()
	w.exec(`TRUNCATE events_restored`)
	must.Get(w.a.Restore(ctx, Days{}, func(Progress) {}))(w.t)
	return w.rowsOf(`(SELECT * FROM events UNION ALL SELECT * FROM events_restored)`)
}

// once archives, and may not fail.
func (w *world) once() Done {
	w.t.Helper()
	done := must.Get(w.a.Once(context.Background()))(w.t)
	return done
}

// partitions is how many there are.
func (w *world) partitions() (n int) {
	w.t.Helper()
	must.Do(w.t, w.a.pool.QueryRow(context.Background(),
		`SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass`).Scan(&n))
	return n
}

// TestArchive runs the tests below with each kind of store, on one server.
func TestArchive(t *testing.T) {
	p := servers.StartPostgres(t)
	for name, test := range map[string]func(*testing.T, *world){
		"old partitions go there": testMoves, "rows that come late": testLate, "damage is found": testDamage,
		"what cannot be archived": testRefused, "a disk without room": testFull,
		"killed between every two steps": testKilled, "erase killed between every two steps": testEraseKilled,
	} {
		for kind, far := range map[string]bool{"folder": false, "bucket": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				databases++
				test(t, newWorld(t, p, fmt.Sprint("test", databases), far))
			})
		}
	}
}

var databases int // so that each test has its own
