package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	postgresScript = "deploy/backup/postgres.sh"
	redisScript    = "deploy/backup/redis.sh"
	keepWALEvery   = 5 * time.Second // archive_timeout of the rehearsal
)

// rehearsal is a control plane of which backups are taken while rows are written.
type rehearsal struct {
	*world
	db               *pgx.Conn
	base             string
	archived, stream string      // folders of WAL: by archive_command, and by pg_receivewal
	written          []time.Time // when each of the users w0, w1, … was committed
	ended            time.Time   // when the server was destroyed
}

// script runs a script that has to succeed, and returns how long it took.
func script(t testing.TB, cmd *exec.Cmd) time.Duration {
	t.Helper()
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return time.Since(began)
}

// redisCommand is a script that reaches a Redis.
func redisCommand(t testing.TB, r *servers.Redis, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(servers.Root(t), redisScript), args...)
	cmd.Env = append(os.Environ(), "REDIS_CLI=redis-cli -s "+r.Socket)
	return cmd
}

// newRehearsal starts a control plane whose PostgreSQL keeps its WAL, and whose Redis keeps a log.
func newRehearsal(t testing.TB) *rehearsal {
	t.Helper()
	w := &world{t: t, postgres: servers.StartPostgres(t, "archive_mode=on",
		fmt.Sprintf("archive_timeout=%d", int(keepWALEvery.Seconds()))), redis: servers.StartRedis(
		t, "--appendonly", "yes", "--repl-diskless-sync-delay", "0")}
	r := &rehearsal{world: w, archived: w.postgres.Folder(t, "wal"), stream: w.postgres.Folder(t, "received"),
		base: w.postgres.Folder(t, "base")}
	command := w.postgres.Script(t, postgresScript, "archive", r.archived)
	r.db = connect(t, w.postgres)
	for _, sql := range []string{
		fmt.Sprintf(`ALTER SYSTEM SET archive_command = '%s archive %s "%%p" "%%f"'`, scriptOf(command), r.archived),
		"SELECT pg_reload_conf()",
	} {
		r.exec(sql)
	}
	w.controls = append(w.controls, r.control(w.postgres))
	w.sidecars = append(w.sidecars, servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr,
		"STORE_SILENCE=1s", "STORE_PATIENCE=2s", "LEASES=false"))
	return r
}

// control starts a control with a database.
func (r *rehearsal) control(p *servers.Postgres) *servers.Control {
	r.t.Helper()
	return servers.StartControl(r.t, "CONTROL_DATABASE_URL="+p.URL, "REDIS_URL="+r.redis.Addr)
}

// scriptOf is the path of the script in a command that may begin with another program.
func scriptOf(cmd *exec.Cmd) string {
	for _, word := range cmd.Args {
		if strings.HasSuffix(word, ".sh") {
			return word
		}
	}
	return ""
}

func connect(t testing.TB, p *servers.Postgres) *pgx.Conn {
	t.Helper()
	conn := must.Get(pgx.Connect(context.Background(), p.URL))(t)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (r *rehearsal) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.db.Exec(context.Background(), sql, args...)
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// write adds users, each in a transaction of its own.
func (r *rehearsal) write(n int) {
	r.t.Helper()
	for range n {
		r.exec(`INSERT INTO users (domain, name, quota_day, updated_by) VALUES ('api', $1, 5, 'rehearsal')`,
			fmt.Sprintf("w%d", len(r.written)))
		r.written = append(r.written, time.Now())
	}
}

// fed waits until Redis has all that the database has.
func (r *rehearsal) fed(control int) {
	r.t.Helper()
	servers.Await(r.t, "the profiles in Redis", func() error {
		got := r.call(control, "GET", "/v1/status", nil)
		if got.body["pending"] != 0.0 || got.body["leads"] != true || got.body["walked_at"] == nil {
			return errors.New(got.text)
		}
		return nil
	})
}

// restore restores a backup, and returns the server and how long it took from the first command until the server takes
// changes.
func (r *rehearsal) restore(name, wal string, until ...string) (*servers.Postgres, time.Duration) {
	r.t.Helper()
	began := time.Now()
	data := r.postgres.Folder(r.t, name)
	script(r.t, r.postgres.Script(r.t, postgresScript, append([]string{"restore", r.base, wal, data}, until...)...))
	p := r.postgres.Restored(r.t, data)
	servers.Await(r.t, "the end of the recovery", func() error {
		conn, err := pgx.Connect(context.Background(), p.URL)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		var recovers bool
		err = conn.QueryRow(context.Background(), "SELECT pg_is_in_recovery()").Scan(&recovers)
		if err == nil && recovers {
			err = errors.New("it still replays")
		}
		return err
	})
	return p, time.Since(began)
}

// has returns how many of the users that were written are there. They have to be the first ones, without a hole.
func (r *rehearsal) has(p *servers.Postgres) int {
	r.t.Helper()
	var n, last int
	err := connect(r.t, p).QueryRow(context.Background(),
		`SELECT count(*), coalesce(max(substr(name, 2)::int), -1) FROM users WHERE name ~ '^w[0-9]+$'`).Scan(&n, &last)
	if err != nil || n != last+1 {
		r.t.Fatalf("%d users are there, and the last is w%d: %v", n, last, err)
	}
	return n
}

// TestBackupsAreRestored fills a control plane, takes backups, writes more, destroys PostgreSQL and Redis, and
// restores both. In full it also restores to the end of each kind of WAL, and measures what is lost.
func TestBackupsAreRestored(t *testing.T) {
	r := newRehearsal(t)
	more := 100
	if full {
		more = 5000
	}
	r.must("POST", versions, map[string]any{"text": rulesOf(2), "note": "the first"})
	r.awaitVersion(1)
	receiver := servers.Start(t, r.postgres.Script(t, postgresScript, "receive", r.stream))
	r.write(more)
	t.Logf("PostgreSQL: base backup in %v",
		script(t, r.postgres.Script(t, postgresScript, "base", r.base)).Round(time.Millisecond))
	r.write(more)
	var point string
	must.Do(t, r.db.QueryRow(context.Background(), "SELECT clock_timestamp()::text").Scan(&point))
	kept := len(r.written)
	r.must("POST", versions, map[string]any{"text": rulesOf(4), "note": "the mistake"}, "If-Match", `"1"`)
	r.awaitVersion(2)
	r.write(more)
	r.fed(0)
	rdb, aof := r.backUpRedis()
	if full {
		r.awaitArchive()
		script(t, r.postgres.Script(t, postgresScript, "prune", r.base, r.archived))
		r.write(more)
	}
	r.destroy(receiver)
	if full {
		r.loss("archive_command", "end-archive", r.archived)
		r.loss("pg_receivewal", "end-stream", r.stream)
	}
	restored, took := r.restore("point", r.stream, point)
	refused(t, r.postgres.Script(t, postgresScript, "restore", r.base, r.stream,
		filepath.Join(filepath.Dir(r.base), "point")), "is not empty")
	if got := r.has(restored); got != kept {
		t.Errorf("to the point in time %d users are restored, want %d", got, kept)
	}
	t.Logf("PostgreSQL: to a point in time in %v; %d rows from before it are there, %d from after it are not",
		took.Round(time.Millisecond), kept, len(r.written)-kept)
	r.restoreRedis("AOF", aof, "--appendonly", "yes")
	r.restoreRedis("RDB", rdb)
	r.mends(restored)
}

// awaitArchive waits until WAL was archived that holds all that is written so far.
func (r *rehearsal) awaitArchive() {
	r.t.Helper()
	var now string
	must.Do(r.t, r.db.QueryRow(context.Background(), "SELECT pg_walfile_name(pg_current_wal_lsn())").Scan(&now))
	servers.Await(r.t, "WAL in the archive", func() error {
		r.write(10) // archive_timeout counts from the first change
		_, err := os.Stat(filepath.Join(r.archived, now))
		return err
	})
}

// destroy ends PostgreSQL and its control as a machine that burns, and removes its data.
func (r *rehearsal) destroy(receiver *servers.Process) {
	r.t.Helper()
	r.controls[0].End(r.t)
	r.ended = time.Now()
	r.postgres.Destroy(r.t)
	receiver.End(r.t)
}

// loss restores to the end of the WAL, and logs what is missing.
func (r *rehearsal) loss(kind, name, wal string) {
	r.t.Helper()
	p, took := r.restore(name, wal)
	got := r.has(p)
	lost := time.Duration(0)
	if got < len(r.written) {
		lost = r.ended.Sub(r.written[max(got-1, 0)])
	}
	if lost > 2*keepWALEvery {
		r.t.Errorf("%s loses %v, and archive_timeout is %v", kind, lost, keepWALEvery)
	}
	r.t.Logf("PostgreSQL: to the end of the WAL of %s in %v; %d of %d rows are lost, %v of time", kind,
		took.Round(time.Millisecond), len(r.written)-got, len(r.written), lost.Round(time.Millisecond))
	p.Kill(r.t)
}

// backUpRedis takes both backups, and writes keys before and after each.
func (r *rehearsal) backUpRedis() (rdb, aof string) {
	r.t.Helper()
	rdb, aof = filepath.Join(r.t.TempDir(), "rdb"), filepath.Join(r.t.TempDir(), "aof")
	r.redis.Do(r.t, "SET", "before", "1")
	snapshot := script(r.t, redisCommand(r.t, r.redis, "rdb", rdb))
	log := script(r.t, redisCommand(r.t, r.redis, "aof", aof))
	r.redis.Do(r.t, "SET", "after", "1")
	r.t.Logf("Redis: %v keys; RDB in %v, AOF in %v", r.redis.Do(r.t, "DBSIZE"), snapshot.Round(time.Millisecond),
		log.Round(time.Millisecond))
	return rdb, aof
}

// restoreRedis destroys Redis and starts it with a backup.
func (r *rehearsal) restoreRedis(kind, from string, settings ...string) {
	r.t.Helper()
	before := r.redis.Do(r.t, "DBSIZE")
	data := filepath.Join(r.t.TempDir(), "data")
	r.redis.Kill(r.t)
	began := time.Now()
	script(r.t, redisCommand(r.t, r.redis, "restore", from, data))
	r.redis.StartIn(r.t, data, settings...)
	took := time.Since(began)
	there, gone := fmt.Sprint(r.redis.Do(r.t, "EXISTS", "before")), fmt.Sprint(r.redis.Do(r.t, "EXISTS", "after"))
	if there != "1" || gone != "0" {
		r.t.Errorf("%s: the key from before the backup is there %s times, the one from after it %s times", kind, there,
			gone)
	}
	r.t.Logf("Redis: %s restored in %v: %v keys of %v", kind, took.Round(time.Millisecond), r.redis.Do(r.t, "DBSIZE"),
		before)
}

// mends starts a control with the restored database: what Redis has from after the point in time goes, and what it
// lacks comes back.
func (r *rehearsal) mends(restored *servers.Postgres) {
	r.t.Helper()
	last, first := fmt.Sprintf("rec1:*w%d}*:user", len(r.written)-1), "rec1:*w0}*:user"
	key := strings.Trim(fmt.Sprint(r.redis.Do(r.t, "KEYS", first)), "[]")
	r.redis.Do(r.t, "DEL", key)
	began := time.Now()
	script(r.t, redisCommand(r.t, r.redis, "forget"))
	r.controls = append(r.controls, r.control(restored))
	r.fed(1)
	r.awaitVersion(1)
	r.t.Logf("Redis: what differs from PostgreSQL is mended %v after forget, with the start of a control",
		time.Since(began).Round(time.Millisecond))
	if got := fmt.Sprint(r.redis.Do(r.t, "EXISTS", key)); got != "1" {
		r.t.Errorf("the record %q that was missing is there %s times", key, got)
	}
	if left := fmt.Sprint(r.redis.Do(r.t, "KEYS", last)); left != "[]" {
		r.t.Errorf("a user from after the point in time still has its record: %s", left)
	}
	if got := r.admits("new", 6); got != 2 {
		r.t.Errorf("with the rules of the point in time %d of 6 pass, want 2", got)
	}
}

// refused runs a script that has to fail, and to print why.
func refused(t testing.TB, cmd *exec.Cmd, why string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), why) {
		t.Errorf("%v: %v, want a failure with %q:\n%s", cmd.Args, err, why, out)
	}
}

// TestBackupScriptsRefuse calls the scripts with what they must not take. Nothing is overwritten.
func TestBackupScriptsRefuse(t *testing.T) {
	full, missing := t.TempDir(), filepath.Join(t.TempDir(), "missing")
	for _, name := range []string{"precious", "backup_label"} {
		must.Do(t, os.WriteFile(filepath.Join(full, name), []byte("1"), 0o600))
	}
	precious := filepath.Join(full, "precious")
	for _, one := range []struct{ script, words, why string }{
		{postgresScript, "", "the command (none) is unknown"},
		{postgresScript, "backup", "the command backup is unknown"},
		{postgresScript, "base", "base takes 1 words, and 0 are given"},
		{postgresScript, "base " + full, "is not empty"},
		{postgresScript, "archive " + missing + " " + precious + " 000000010000000000000001",
			"make the folder for the WAL first"},
		{postgresScript, "archive " + full + " " + precious + " backup_label", ""},
		{postgresScript, "archive " + full + " /etc/hostname precious", "with other contents"},
		{postgresScript, "prune " + full + " " + full, "does not name the first file of WAL"},
		{postgresScript, "prune " + missing + " " + full, "is not a base backup"},
		{postgresScript, "restore " + full, "restore takes 3 words, and 1 are given"},
		{redisScript, "rdb", "rdb takes 1 words, and 0 are given"},
		{redisScript, "rdb " + full, "is not empty"},
		{redisScript, "aof " + missing, "or does not answer"},
		{redisScript, "restore " + full + " " + missing, "it is not a backup of redis.sh"},
	} {
		cmd := exec.Command(filepath.Join(servers.Root(t), one.script), strings.Fields(one.words)...)
		cmd.Env = append(os.Environ(), "REDIS_CLI=redis-cli -s /nowhere")
		if one.why == "" {
			script(t, cmd)
			continue
		}
		refused(t, cmd, one.why)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "1" {
		t.Errorf("the file that was there is %q: %v", text, err)
	}
}
