package whatif

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
)

func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.yaml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// TestClockIsTheCallers: counters, blocks with an end and calendar windows go by the clock that the caller moves, which
// never goes back.
func TestClockIsTheCallers(t *testing.T) {
	tried := must.Get(New(Config{Paths: []string{rulesFile(t, `domain: shop
timezone: Europe/Berlin
rules:
  - { name: monthly, scope: user, limit: { count: 1, per: calendar_month } }
  - { name: gone, match: { users: [mallory] }, action: block, until: 2026-03-01T00:00:00Z }
`)}}))(t)
	defer tried.Close()
	ask := func(at, user string) engine.Outcome {
		t.Helper()
		instant := must.Get(time.Parse(time.RFC3339, at))(t)
		tried.At(instant)
		var v engine.Verdict
		must.Do(t, tried.Decide(&descriptors.Request{Domain: "shop",
			Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: user}}}}}, &v))
		return v.Outcome
	}
	for _, step := range []struct {
		at, user string
		want     engine.Outcome
	}{
		{"2026-02-28T22:30:00Z", "alice", engine.Allowed},
		{"2026-02-28T22:59:59Z", "alice", engine.Refused},
		{"2026-02-28T23:00:00Z", "alice", engine.Allowed}, // it is March in Berlin
		{"2026-02-28T23:59:59Z", "mallory", engine.Blocked},
		{"2026-03-01T00:00:00Z", "mallory", engine.Allowed},
		{"2026-02-01T00:00:00Z", "alice", engine.Refused},
	} {
		if got := ask(step.at, step.user); got != step.want {
			t.Errorf("%s at %s: %v, want %v", step.user, step.at, got, step.want)
		}
	}
	if now := tried.Now().UTC().Format(time.RFC3339); now != "2026-03-01T00:00:00Z" {
		t.Errorf("the clock went back to %s", now)
	}
}

func TestDomains(t *testing.T) {
	one := rulesFile(t, "domain: shop\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n")
	two := rulesFile(t, "domain: edge\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n")
	tried := must.Get(New(Config{Paths: []string{one, two}}))(t)
	defer tried.Close()
	if _, err := tried.Domain(""); err == nil || !strings.Contains(err.Error(), `name one of ["edge" "shop"]`) {
		t.Errorf("no domain of two: %v", err)
	}
	if name, err := tried.Domain("shop"); name != "shop" || err != nil {
		t.Errorf("the shop is %q: %v", name, err)
	}
	_, err := New(Config{Paths: []string{one, one + "x"}})
	var unloadable *Unloadable
	if !errors.Is(err, os.ErrNotExist) || errors.As(err, &unloadable) {
		t.Errorf("a file that is not there: %v", err)
	}
	_, err = New(Config{Paths: []string{rulesFile(t, "domain: shop\nrulez: []\n")}})
	if !errors.As(err, &unloadable) {
		t.Errorf("rules that do not load: %v", err)
	}
}
