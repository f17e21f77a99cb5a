package control_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// secret has all that a shell, a URL and a pattern read in a way of their own.
const secret = `p w*?'"$x\%41:@/ü`

// watched is a folder with a program in front of each of some: it notes its arguments and the password of its
// environment in the file calls, and runs the other.
func watched(t *testing.T, programs ...string) (folder, calls string) {
	t.Helper()
	folder = t.TempDir()
	calls = filepath.Join(folder, "calls")
	for _, name := range programs {
		behind := must.Get(exec.LookPath(name))(t)
		text := fmt.Sprintf(`#!/bin/sh
{ printf 'call:'; printf ' <%%s>' %s "$@"; printf '\npassword: %%s\n' "${PGPASSWORD-${REDISCLI_AUTH-}}"; } >>'%s'
exec '%s' "$@"
`, name, calls, behind)
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755))
	}
	return folder, calls
}

// runBackup runs a script of backups in the environment that is given, with the programs of a folder before others.
func runBackup(t *testing.T, folder, name string, words []string, env ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(servers.Root(t), name), words...)
	cmd.Env = append(os.Environ(), append(env, "PATH="+folder+":"+os.Getenv("PATH"))...)
	script(t, cmd)
}

// checkCalls reports calls that show the secret, or get another password.
func checkCalls(t *testing.T, calls string, least int) {
	t.Helper()
	called := 0
	for line := range strings.Lines(string(must.Get(os.ReadFile(calls))(t))) {
		line = strings.TrimSuffix(line, "\n")
		password, is := strings.CutPrefix(line, "password: ")
		switch {
		case is && password != secret:
			t.Errorf("a program gets the password %q, want %q", password, secret)
		case !is && (strings.Contains(line, secret) || strings.Contains(line, "p%20w")):
			t.Errorf("the password is in the arguments of a program: %s", line)
		case !is:
			called++
		}
	}
	if called < least {
		t.Errorf("%d programs were called, want at least %d", called, least)
	}
}

// TestBackupsShowNoPassword takes backups of servers whose URLs have a password, and loads them: no program gets it as
// an argument, which every user of the machine can read, and each gets the right one.
func TestBackupsShowNoPassword(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		folder, calls := watched(t, "pg_dump", "pg_restore")
		from, to := servers.Database(t), servers.Database(t)
		conn := connect(t, from)
		must.Get(conn.Exec(context.Background(), `CREATE TABLE kept AS SELECT 7 AS n`))(t)
		backup := filepath.Join(t.TempDir(), "backup")
		runBackup(t, folder, postgresScript, []string{"dump", backup, "events*"},
			"DATABASE_URL="+withSecret(t, from.URL))
		runBackup(t, folder, postgresScript, []string{"load", backup}, "DATABASE_URL="+withSecret(t, to.URL))
		var n int
		must.Do(t, connect(t, to).QueryRow(context.Background(), `SELECT n FROM kept`).Scan(&n))
		if n != 7 {
			t.Errorf("%d is restored, want 7", n)
		}
		checkCalls(t, calls, 3)
		for _, wrong := range []string{to.URL + "&password=x", "host=db password=x", ""} {
			cmd := exec.Command(filepath.Join(servers.Root(t), postgresScript), "load", backup)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+wrong)
			refused(t, cmd, "postgres://user:password@host:port/name")
		}
	})
	t.Run("Redis", func(t *testing.T) {
		folder, calls := watched(t, "redis-cli")
		r := servers.StartRedis(t)
		r.Do(t, "ACL", "SETUSER", "back:up", "on", ">"+secret, "~*", "+@all")
		r.Do(t, "ACL", "SETUSER", "default", "-sync", "-psync", "-scan", "-eval")
		r.Do(t, "SET", "rec1:{shop|ann}:user", `{"control":true}`)
		r.Do(t, "SET", "rec1:{shop|o'neil $x}:user", `{"tier":"gold"}`)
		login := url.UserPassword("back:up", secret).String()
		runBackup(t, folder, redisScript, []string{"rdb", filepath.Join(t.TempDir(), "rdb")},
			"REDIS_URL=redis://"+login+"@"+r.Addr+"/0")
		runBackup(t, folder, redisScript, []string{"forget"}, "REDIS_URL=redis://"+login+"@"+r.Addr)
		if keys := fmt.Sprint(r.Do(t, "KEYS", "*")); keys != "[rec1:{shop|o'neil $x}:user]" {
			t.Errorf("forget leaves %s", keys)
		}
		r.Do(t, "ACL", "SETUSER", "backup", "on", ">"+secret, "~*", "+@all")
		file := put(t, "auth", "backup:"+secret)
		for i, env := range [][]string{
			{"REDIS_URL=" + r.Addr, "REDIS_AUTH=backup:" + secret},
			{"REDIS_URL=" + r.Socket, "REDIS_AUTH_FILE=" + file},
			{"REDIS_URL=unix://" + r.Socket, "REDIS_AUTH_FILE=" + file},
		} {
			runBackup(t, folder, redisScript, []string{"rdb", filepath.Join(t.TempDir(), fmt.Sprint(i))}, env...)
		}
		checkCalls(t, calls, 4)
	})
}

// withSecret is the URL of a database with the secret as its password.
func withSecret(t *testing.T, text string) string {
	t.Helper()
	cfg := must.Get(pgx.ParseConfig(text))(t)
	return strings.Replace(text, cfg.User+"@", url.UserPassword(cfg.User, secret).String()+"@", 1)
}
