package sidecar

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
)

// allServers is where the stores are that an environment asks for.
func allServers(t *testing.T, environ ...string) []redis.Servers {
	t.Helper()
	cfg := fromEnv(t, environ...)
	var all []redis.Servers
	for _, r := range cfg.Redises() {
		s := must.Get(r.Servers(cfg.RedisTLS, slog.New(slog.DiscardHandler), func(string) {}))(t)
		all = append(all, s)
	}
	return all
}

// plainly is a login as a test reads it.
func plainly(ask func() (user, password string)) string {
	if ask == nil {
		return "none"
	}
	user, password := ask()
	return user + ":" + password
}

func TestServersAreAsTheVariablesSay(t *testing.T) {
	got := allServers(t, "REDIS_TYPE=Sentinel", "REDIS_URL=mymaster,s1:26379,redis://:spw@s2:26379/2",
		"REDIS_AUTH=u:p:w", "REDIS_POOL_SIZE=7",
		"REDIS_TIMEOUT=1s", "REDIS_PERSECOND=true", "REDIS_PERSECOND_TYPE=RING", "REDIS_PERSECOND_URL=a:1,b:2",
		"REDIS_PERSECOND_TLS=true",
		"REDIS_PERSECOND_AUTH=pw", "REDIS_PERSECOND_POOL_SIZE=3", "REDIS_PERSECOND_TIMEOUT=2s")
	if who := plainly(got[0].Sentinels); who != ":spw" {
		t.Errorf("the sentinels are asked as %s, want :spw", who)
	}
	if got[1].TLS == nil || got[1].TLS().ServerName != "" {
		t.Errorf("TLS for several servers names one of them, or there is none")
	}
	got[0].Sentinels, got[1].TLS = nil, nil
	want := []redis.Servers{
		{
			Kind: redis.Sentinel, Network: "tcp", Addresses: []string{"s1:26379", "s2:26379"}, Master: "mymaster",
			Username: "u", Password: "p:w",
			DB: 2, PoolSize: 7, DialTimeout: time.Second,
		},
		{Kind: redis.Ring, Network: "tcp", Addresses: []string{"a:1", "b:2"}, Password: "pw", PoolSize: 3,
			DialTimeout: 2 * time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestLogins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, "f:from-file\n")
	for name, c := range map[string]struct {
		environ           []string
		server, sentinels string
	}{
		"none":                    {[]string{"REDIS_URL=a:1"}, ":", "none"},
		"URL":                     {[]string{"REDIS_URL=redis://u:pw@a:1"}, "u:pw", "none"},
		"REDIS_AUTH":              {[]string{"REDIS_URL=a:1", "REDIS_AUTH=pw"}, ":pw", "none"},
		"REDIS_AUTH with a user":  {[]string{"REDIS_URL=a:1", "REDIS_AUTH=u:p:w"}, "u:p:w", "none"},
		"REDIS_AUTH with a colon": {[]string{"REDIS_URL=a:1", "REDIS_AUTH=:p:w"}, ":p:w", "none"},
		"REDIS_AUTH before the URL": {[]string{"REDIS_URL=redis://u:pw@a:1", "REDIS_AUTH=v:other"}, "v:other",
			"none"},
		"REDIS_AUTH_FILE before the URL": {[]string{"REDIS_URL=redis://u:pw@a:1", "REDIS_AUTH_FILE=" + file},
			"f:from-file", "none"},
		"sentinel": {
			[]string{"REDIS_TYPE=sentinel", "REDIS_URL=m,redis://x:y@s:1", "REDIS_AUTH=pw", "REDIS_SENTINEL_AUTH=s:pw"},
			":pw", "s:pw",
		},
		"REDIS_SENTINEL_AUTH_FILE": {
			[]string{"REDIS_TYPE=sentinel", "REDIS_URL=m,s:1", "REDIS_SENTINEL_AUTH_FILE=" + file}, ":", "f:from-file",
		},
		"sentinel that asks for none": {[]string{"REDIS_TYPE=sentinel", "REDIS_URL=m,s:1", "REDIS_AUTH=pw"}, ":pw",
			"none"},
	} {
		s := allServers(t, c.environ...)[0]
		server := s.Username + ":" + s.Password
		if s.Credentials != nil {
			server = plainly(s.Credentials)
		}
		if sentinels := plainly(s.Sentinels); server != c.server || sentinels != c.sentinels {
			t.Errorf("%s: %s to the servers and %s to the sentinels, want %s and %s", name, server, sentinels, c.server,
				c.sentinels)
		}
	}
}

func TestAPasswordInAFileMayChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, "first\r\n")
	cfg := fromEnv(t, "REDIS_URL=a:1", "REDIS_AUTH_FILE="+file)
	var log bytes.Buffer
	var hidden []string
	s := must.Get(cfg.Redises()[0].Servers(cfg.RedisTLS, slog.New(slog.NewTextHandler(&log, nil)), func(secret string) {
		hidden = append(hidden, secret)
	}))(t)
	expect := func(when, want string) {
		t.Helper()
		if got := plainly(s.Credentials); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	expect("at start", ":first")
	write(t, file, "app:second")
	expect("changed", "app:second")
	write(t, file, "\n")
	expect("empty", "app:second")
	must.Do(t, os.Remove(file))
	expect("gone", "app:second")
	if !strings.Contains(log.String(), "REDIS_AUTH_FILE: open "+file) || strings.Contains(log.String(), "second") {
		t.Errorf("the log names not the file alone:\n%s", log.String())
	}
	write(t, file, "third")
	expect("there again", ":third")
	for _, secret := range []string{"first", "second", "third"} {
		if !slices.Contains(hidden, secret) {
			t.Errorf("the log would show %q: only %q are hidden", secret, hidden)
		}
	}
}

func TestTheLogTellsWhereCountsAreKept(t *testing.T) {
	cfg := fromEnv(t, "REDIS_TYPE=cluster", "REDIS_URL=redis://:hunter2@a:1,b:2", "REDIS_PERSECOND=true",
		"REDIS_PERSECOND_URL=/run/redis.sock")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("counting", whereRedis(&cfg)...)
	want := `patience=100ms at="cluster at redis://a:1,b:2/0" per_second_at=unix:///run/redis.sock`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log says %q, want %q in it", log.String(), want)
	}
}
