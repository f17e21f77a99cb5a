package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// The people of these tests, in words that occur in nothing else.
const gone, stays = "annabelle-7f3a", "bartholomew-2c1d"

// TestEraseLeavesNoTrace erases a user who has left traces everywhere, without and with KEY_SECRET, and then searches
// every table, every key of Redis and every file itself. The traces of another user stay.
func TestEraseLeavesNoTrace(t *testing.T) {
	for name, secret := range map[string]string{"plain": "", "hashed": "a secret of sixteen bytes and more"} {
		t.Run(name, func(t *testing.T) {
			w := newEraseWorld(t, secret)
			w.trace(gone)
			w.trace(stays)
			w.archive()
			places := w.erase(gone, 0)
			for _, p := range []string{
				"streams in Redis", "api_keys", "profiles", "audit", "events", "usage_minutes", "identity_hours",
				"call_hours", "usage_of_another_room", "events_restored", "profiles in Redis", "counters in Redis", "archive",
			} {
				if places[p].Removed == 0 {
					t.Errorf("nothing was removed from %s: %v", p, places)
				}
			}
			if left := w.find(gone); len(left) > 0 {
				t.Errorf("after the erasure there are traces in %v", left)
			}
			for _, p := range []string{
				"table profiles", "table api_keys", "table audit", "table events", "table usage_minutes",
				"table usage_of_another_room", "Redis", "archive",
			} {
				if found := w.find(stays); !strings.Contains(strings.Join(found, "\n"), p) {
					t.Errorf("the traces of another are gone from %s: there are %v", p, found)
				}
			}
			for place, p := range w.erase(gone, 0) {
				if p.Removed != 0 {
					t.Errorf("a second erasure removes %d from %s", p.Removed, place)
				}
			}
			if out, code := w.spillway("archive", "verify"); code != 0 {
				t.Errorf("archive verify ends with %d: %s", code, out)
			}
		})
	}
}

// TestEraseReportsWhatIsLeft asks a control that does not know the archive.
func TestEraseReportsWhatIsLeft(t *testing.T) {
	w := newEraseWorld(t, "")
	w.trace(gone)
	w.archive()
	w.readArchive()
	w.controls[0].End(t)
	w.controls = []*servers.Control{servers.StartControl(t, "CONTROL_DATABASE_URL="+w.postgres.URL,
		"REDIS_URL="+w.redis.Addr)}
	if places := w.erase(gone, 1); places["archive"].Left == 0 {
		t.Errorf("nothing is left in the archive: %v", places)
	}
	for _, args := range [][]string{{}, {"a", "ip/192.0.2.1"}, {"user/"}, {"192.0.2.1"}} {
		if out, code := w.spillway(append([]string{"erasures", "create", "--domain", "api"}, args...)...); code != 2 {
			t.Errorf("erase %v ends with %d: %s", args, code, out)
		}
	}
	if out, code := w.spillway("erasures", "create", "--domain", "api", "planet/mars"); code == 0 {
		t.Errorf("a planet is erased: %s", out)
	}
}

// readArchive reads the archive by the commands.
func (w *eraseWorld) readArchive() {
	w.t.Helper()
	day, month := w.old.Format(time.DateOnly), w.old.Format("2006-01")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{0, day + "  eu      5     ", []string{"list", month}},
		{0, `"rows": 5,`, []string{"list", "-o", "json"}},
		{0, "1 files, 5 rows, 0 files that differ", []string{"verify", day}},
		{0, "0 files, 0 rows", []string{"verify", "2001-01"}},
		{0, day + "T01:00:00.000000Z  refused 429  api  rule per-user  user:" + gone + "  GET /  5 of 5",
			[]string{"query", "--identity", "user:" + gone, "--from", day}},
		{0, `{"at":"` + day + `T01:00:00.000000Z","sidecar":"t-2","sequence":1,`,
			[]string{"query", "--outcome", "refused", "--limit", "1", "-o", "json"}},
		{0, "[]\n", []string{"query", "--to", day, "-o", "json"}},
		{0, "5 rows of 1 files are in events_restored", []string{"restore", day}},
		{0, "  0 %, 0 lines", []string{"restore", month, "--progress", "always"}},
		{2, "must be a day such as", []string{"restore", "May"}},
		{2, "must be a day such as", []string{"query", "--from", "yesterday"}},
		{2, "must be KIND:VALUE", []string{"query", "--identity", gone}},
		{2, "must be a folder or s3://bucket/prefix", []string{"list", "--archive", "ftp://x"}},
	} {
		out, code := w.spillway(append([]string{"archive"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			w.t.Errorf("archive %v ends with %d, want %d and %q: %s", c.args, code, c.code, c.want, out)
		}
	}
	files, err := filepath.Glob(w.folder + "/*/*/*/*/*.parquet")
	if err != nil || len(files) != 1 {
		w.t.Fatalf("files: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[0], text[:len(text)-1], 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if out, code := w.spillway("archive", "verify"); code != 1 || !strings.Contains(out, "1 files that differ") {
		w.t.Errorf("verify of a damaged file ends with %d: %s", code, out)
	}
}

// copyLock is the number of the advisory lock of the control that copies usage and events.
const copyLock = 7_269_310_517_334_086

// eraseWorld is a world with an archive in a folder.
type eraseWorld struct {
	*world
	folder string
	keys   keys.Names
	secret string
	old    time.Time // a day of a partition that is old enough
	db     *pgx.Conn
	sent   int
	traced []string // users
}

func newEraseWorld(t *testing.T, secret string) *eraseWorld {
	t.Helper()
	w := &eraseWorld{folder: filepath.Join(t.TempDir(), "archive"), secret: secret,
		keys: keys.NewNames("", []byte(secret))}
	servers.Inside(t, 24*time.Hour, 50*time.Second) // the counters of quotas end with the day
	w.world = &world{t: t, postgres: servers.Database(t), redis: servers.StartRedis(t)}
	ctx := context.Background()
	db := must.Get(pgx.Connect(ctx, w.postgres.URL))(t)
	t.Cleanup(func() { _ = db.Close(ctx) })
	w.db = db
	w.exec(`SELECT pg_advisory_lock($1)`, copyLock) // so that what is in the streams stays there until it is erased
	w.controls = []*servers.Control{servers.StartControl(t, w.env()...)}
	w.sidecars = []*servers.Sidecar{servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr,
		"STORE_SILENCE=1s", "STORE_PATIENCE=2s", "LEASES=false", "KEY_SECRET="+secret)}
	now := time.Now().UTC()
	w.old = time.Date(now.Year(), now.Month()-6, 3, 0, 0, 0, 0, time.UTC)
	w.awaitPartition("events_" + now.Format("2006_01"))
	w.awaitPartition("endpoint_days_" + now.Format("2006")) // the last one
	w.exec(`CREATE TABLE usage_of_another_room (domain text, identity text, requests bigint)`)
	w.must("POST", versions, map[string]any{"text": rulesOf(50)})
	w.awaitVersion(1)
	return w
}

// awaitPartition waits until the control has made a partition.
func (w *eraseWorld) awaitPartition(name string) {
	w.t.Helper()
	servers.Await(w.t, "the partition "+name, func() error {
		const there = `SELECT FROM pg_inherits WHERE inhrelid = to_regclass($1)`
		return w.db.QueryRow(context.Background(), there, name).Scan()
	})
}

// partitions makes the partitions of the month of a day.
func (w *eraseWorld) partitions(day time.Time) {
	w.t.Helper()
	month := time.Date(day.Year(), day.Month(), 1, 0, 0, 0, 0, time.UTC)
	for _, table := range []string{"events", "usage_minutes", "identity_hours", "call_hours"} {
		w.exec(fmt.Sprintf(`DO $$ BEGIN
			CREATE TABLE IF NOT EXISTS %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s');
			EXCEPTION WHEN duplicate_table OR unique_violation THEN NULL; END $$`, table, month.Format("2006_01"),
			month.Format(time.RFC3339), month.AddDate(0, 1, 0).Format(time.RFC3339)))
	}
}

func (w *eraseWorld) env() []string {
	return []string{"CONTROL_DATABASE_URL=" + w.postgres.URL, "REDIS_URL=" + w.redis.Addr,
		"CONTROL_ARCHIVE=" + w.folder, "KEY_SECRET=" + w.secret}
}

func (w *eraseWorld) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(context.Background(), sql, args...)
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// spillway runs the command, and returns what it prints and its exit code.
func (w *eraseWorld) spillway(args ...string) (string, int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, servers.SpillwayBin(w.t), args...)
	cmd.Env = append(w.env(), "SPILLWAY_CONTROL="+w.controls[0].URL)
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		w.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// archive gives all who left traces old ones, and archives them. The control may do so at the same time, and drops the
// partitions then: they are made and filled in one transaction.
func (w *eraseWorld) archive() {
	w.t.Helper()
	w.exec(`BEGIN`)
	w.partitions(w.old)
	for _, user := range w.traced {
		w.record(w.old.Add(time.Hour), user)
	}
	w.exec(`COMMIT`)
	servers.Await(w.t, "the archive", func() error {
		out, code := w.spillway("archive", "run")
		var files int
		err := w.db.QueryRow(context.Background(), `SELECT count(*) FROM archives WHERE sealed`).Scan(&files)
		if err == nil && files == 0 {
			err = fmt.Errorf("archive run ends with %d: %s", code, out)
		}
		return err
	})
}

// erased is one place of the report.
type erased struct{ Removed, Left int64 }

// erase erases a user by the command, which has to end with that code.
func (w *eraseWorld) erase(user string, want int) map[string]erased {
	w.t.Helper()
	out, code := w.spillway("erasures", "create", "--domain", "api", "user/"+user, "-o", "json")
	var report struct {
		Places []struct {
			Place string
			erased
		}
	}
	err := json.Unmarshal([]byte(out), &report)
	if err != nil || code != want {
		w.t.Fatalf("erase ends with %d, want %d: %s", code, want, out)
	}
	all := map[string]erased{}
	for _, p := range report.Places {
		all[p.Place] = p.erased
	}
	return all
}

// trace lets a user leave traces everywhere.
func (w *eraseWorld) trace(user string) {
	w.t.Helper()
	w.must("PUT", "/v1/domains/api/users/"+user, map[string]any{"quota_day": 1000})
	w.must("POST", "/v1/domains/api/keys", map[string]any{"id": user + "-key", "user": user})
	w.must("PUT", "/v1/domains/api/blocks/api_key/"+user+"-key", map[string]any{"reason": "unpaid"})
	identity := w.keys.Identity("user", user)
	w.traced = append(w.traced, user)
	w.record(time.Now().UTC(), user)
	w.exec(`INSERT INTO usage_of_another_room VALUES ('api', $1, 5)`, identity)
	w.exec(`INSERT INTO record_sources (sidecar, stream, sequence, region)
	  VALUES ($1, 'usage', 1, 'eu'), ($1, 'events', 1, 'eu')`, user[:4])
	rows := map[string]string{
		fmt.Sprintf(`{"identities":[{"minute":%d,"domain":"api","name":%q,"outcome":"refused","requests":1,"cost":1}]}`,
			time.Now().Unix()/60, identity): "usage",
		fmt.Sprintf(`{"keys":[{"minute":%d,"domain":"api","name":%q,"requests":1,"refused":1}]}`, time.Now().Unix()/60,
			w.keyName(user)): "usage",
		fmt.Sprintf(`{"events":[{"at":%d,"domain":"api","outcome":"refused","identity":%q,"weight":1}]}`,
			time.Now().UnixMicro(), identity): "events",
		fmt.Sprintf(`{"events":[{"at":%d,"domain":"api","outcome":"refused","api_key":%q,"weight":1}]}`,
			time.Now().UnixMicro(), w.keyName(user)): "events",
		fmt.Sprintf(`{"events":[{"at":%d,"domain":"api","outcome":"refused","api_key":%q,"weight":1}]}`,
			time.Now().UnixMicro(), user+"-key"): "events",
	}
	for text, stream := range rows {
		w.redis.Do(w.t, "XADD", w.keys.Shared(stream), "*", "sidecar", user[:4], "sequence", "1", "region", "eu",
			"dropped", "0", "rows", text)
	}
	servers.Await(w.t, "the profiles of "+user, func() error {
		if n := w.redis.Do(w.t, "EXISTS", w.keys.Profile("api", "user", user)); n != int64(1) {
			return fmt.Errorf("EXISTS answers %v", n)
		}
		return nil
	})
	before := w.quotas()
	servers.Await(w.t, "a counter of the quota of "+user, func() error {
		if admitted := w.admits(user, 1); w.quotas() == before {
			return fmt.Errorf("%d of one is admitted, and there are %d counters as before", admitted, before)
		}
		return nil
	})
}

// quotas is how many counters of quotas of a day there are.
func (w *eraseWorld) quotas() int {
	w.t.Helper()
	return len(w.redis.Do(w.t, "KEYS", "rl1:*:day:fw").([]any))
}

// record writes events and usage of a user. One of the events has nothing of the user but the API key.
func (w *eraseWorld) record(at time.Time, user string) {
	w.t.Helper()
	w.sent++
	identity := w.keys.Identity("user", user)
	for _, table := range []string{"events", "events_restored"} {
		w.exec(`INSERT INTO `+table+` SELECT $1, $2, n, 0, 'api', 'refused', 'per-user',
		  CASE n WHEN 5 THEN '' ELSE $3 END, CASE n WHEN 5 THEN $4 ELSE '' END, '', 'GET', '/', 5, 5, 1, 429, 1, 1,
		  'eu', 1 FROM generate_series(1, 5) AS n`, at, fmt.Sprint("t-", w.sent), identity, user+"-key")
	}
	w.exec(`INSERT INTO usage_minutes VALUES (date_trunc('minute', $1::timestamptz, 'UTC'), 'api', '', $2, 'refused', 5,
	  5)`, at, identity)
	w.exec(`INSERT INTO call_hours
	  VALUES (date_trunc('hour', $1::timestamptz, 'UTC'), 'api', $2, '/', 'allowed', 5, 5)`,
		at, identity)
	w.exec(`INSERT INTO identity_hours VALUES (date_trunc('hour', $1::timestamptz, 'UTC'), 'api', $2, 5, '{5}')`, at,
		identity)
}

// keyName is how usage names the API key of a user.
func (w *eraseWorld) keyName(user string) string {
	return w.keys.Identity(journal.KeyKind, journal.KeyOf(user+"-key"))
}

// find searches all tables, all of Redis and all files for a user, in clear and as the record names it.
func (w *eraseWorld) find(user string) (places []string) {
	w.t.Helper()
	ctx := context.Background()
	words := []string{user, strings.TrimPrefix(w.keys.Identity("user", user), "user:")}
	key, _, _ := strings.Cut(strings.TrimPrefix(w.keys.Profile("api", "user", user), "rec1:{api|"), "}")
	words = append(words, key, w.keyName(user))
	rows, err := w.db.Query(ctx, `SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
	  AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	if err != nil {
		w.t.Fatal(err)
	}
	tables := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(w.t)
	for _, word := range words {
		for _, table := range tables {
			var n int
			err = w.db.QueryRow(ctx, `SELECT count(*) FROM `+table+` AS t WHERE strpos(t::text, $1) > 0`, word).Scan(&n)
			if err != nil {
				w.t.Fatal(err)
			}
			if n > 0 {
				places = append(places, fmt.Sprintf("table %s: %d", table, n))
			}
		}
		places = append(places, w.findElsewhere(word)...)
	}
	return places
}

// findElsewhere searches Redis and the files.
func (w *eraseWorld) findElsewhere(word string) (places []string) {
	w.t.Helper()
	keys, _ := w.redis.Do(w.t, "KEYS", "*").([]any)
	for _, key := range keys {
		name := fmt.Sprint(key)
		held := ""
		if kind := w.redis.Do(w.t, "TYPE", name); kind == "stream" {
			held = fmt.Sprint(w.redis.Do(w.t, "XRANGE", name, "-", "+"))
		} else if kind == "string" {
			held = fmt.Sprint(w.redis.Do(w.t, "GET", name))
		}
		if strings.Contains(name+held, word) {
			places = append(places, "Redis: "+name)
		}
	}
	must.Do(w.t, filepath.WalkDir(w.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(word)) {
			places = append(places, "archive: "+filepath.Base(path))
		}
		return err
	}))
	return places
}
