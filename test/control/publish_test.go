package control_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	versions  = "/v1/domains/api/versions"
	published = "/v1/domains/api/published"
)

// TestPublishedRulesAreEnforced walks through the life of a rule set: published, enforced on two sidecars, changed,
// refused, rolled back; then Redis is flushed, and the control killed.
func TestPublishedRulesAreEnforced(t *testing.T) {
	w := newWorldOn(t, servers.StartPostgres(t), 1, 2)
	first := w.must("POST", versions, map[string]any{"text": rulesOf(2), "note": "the first"})
	if first.status != http.StatusCreated || first.etag != `"1"` {
		t.Fatalf("the first version answers %d with etag %s, want 201 and 1", first.status, first.etag)
	}
	w.awaitVersion(1)
	if got := w.admits("ann", 6); got != 2 {
		t.Errorf("two sidecars admit %d of 6, want 2 together", got)
	}
	t.Run("a change that names an earlier state is refused", func(t *testing.T) {
		w.must("POST", versions, map[string]any{"text": rulesOf(4)}, "If-Match", `"1"`)
		if got := w.call(0, "POST", versions, map[string]any{"text": rulesOf(9)}, "If-Match",
			`"1"`); got.status != http.StatusPreconditionFailed {
			t.Errorf("with the etag of before it answers %d: %s", got.status, got.text)
		}
		w.awaitVersion(2)
		if got := w.admits("ben", 8); got != 4 {
			t.Errorf("after the change %d of 8 pass, want 4", got)
		}
	})
	t.Run("a bad version is refused whole", func(t *testing.T) {
		bad := "domain: api\nrules:\n  - { name: a, scope: userr, limit: 2/1m }\n  - { name: b, scope: user, limit: " +
			"none }\n"
		got := w.call(0, "POST", versions, map[string]any{"text": bad}, "If-Match", `"2"`)
		if got.status != http.StatusUnprocessableEntity || !strings.Contains(got.text, ":3:") ||
			!strings.Contains(got.text, ":4:") {
			t.Errorf("it answers %d, want 422 with both problems: %s", got.status, got.text)
		}
		if list := w.must("GET", versions, nil); len(list.body["versions"].([]any)) != 2 {
			t.Errorf("the refused version is kept: %s", list.text)
		}
	})
	t.Run("roll back", func(t *testing.T) {
		w.must("PUT", published, map[string]any{"version": 1, "note": "too many"}, "If-Match", `"2"`)
		w.awaitVersion(3)
		if got := w.admits("cem", 6); got != 2 {
			t.Errorf("after the roll back %d of 6 pass, want 2", got)
		}
		diff := w.must("GET", "/v1/domains/api/diff?from=1&to=2", nil)
		if !strings.Contains(diff.text, "per-user") {
			t.Errorf("the difference does not name the rule: %s", diff.text)
		}
		text := w.must("GET", versions+"/1", nil)
		if text.body["text"] != rulesOf(2) {
			t.Errorf("the text is %q, want what was sent", text.body["text"])
		}
	})
	t.Run("audit", func(t *testing.T) {
		got := w.must("GET", "/v1/audit?domain=api&kind=rules", nil)
		if entries := got.body["entries"].([]any); len(entries) != 5 {
			t.Errorf("%d lines about the rules, want two versions and three publications: %s", len(entries), got.text)
		}
	})
	survives(t, w)
}

// survives flushes Redis, and kills the control.
func survives(t *testing.T, w *world) {
	t.Helper()
	w.must("PUT", "/v1/domains/api/users/dora", map[string]any{"quota_hour": 3})
	servers.Await(t, "the quota of dora", func() error { return w.recordThere() })
	w.redis.Do(t, "FLUSHALL")
	servers.Await(t, "what was flushed", func() error {
		if err := w.recordThere(); err != nil {
			return err
		}
		if n := w.redis.Do(t, "HLEN", "rec1:{sidecars}:rules"); fmt.Sprint(n) != "1" {
			return fmt.Errorf("%v documents", n)
		}
		return nil
	})
	servers.Await(t, "the quota in force", func() error {
		if got := w.admits("dora", 5); got > 0 {
			return fmt.Errorf("%d of 5 pass", got)
		}
		return nil
	})
	w.controls[0].End(t)
	w.postgres.Kill(t)
	if got := w.admits("eli", 6); got != 2 {
		t.Errorf("without control and database %d of 6 pass, want 2", got)
	}
	late := servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	w.sidecars = append(w.sidecars, late)
	w.awaitVersion(3)
}

// recordThere returns whether Redis has the record of a user.
func (w *world) recordThere() error {
	keys := fmt.Sprint(w.redis.Do(w.t, "KEYS", "rec1:*dora*"))
	if !strings.Contains(keys, "dora") {
		return errors.New("the record of dora is missing")
	}
	return nil
}

// TestAnotherControlTakesOver kills the leader of two: the other one publishes what comes next, also what was changed
// at the leader.
func TestAnotherControlTakesOver(t *testing.T) {
	w := newWorld(t, 2, 1)
	leader := -1
	servers.Await(t, "a leader", func() error {
		leads := 0
		for i := range w.controls {
			if w.call(i, "GET", "/v1/status", nil).body["leads"] == true {
				leader = i
				leads++
			}
		}
		if leads != 1 {
			return fmt.Errorf("%d lead", leads)
		}
		return nil
	})
	other := 1 - leader
	got := w.call(other, "POST", versions, map[string]any{"text": rulesOf(2)})
	if got.status != http.StatusCreated {
		t.Fatalf("the follower answers %d: %s", got.status, got.text)
	}
	w.awaitVersion(1) // the leader is notified of what the follower wrote
	w.controls[leader].End(t)
	got = w.call(other, "POST", versions, map[string]any{"text": rulesOf(4)}, "If-Match", got.etag)
	if got.status != http.StatusCreated {
		t.Fatalf("after the end of the leader the other answers %d: %s", got.status, got.text)
	}
	w.awaitVersion(2)
	if status := w.call(other, "GET", "/v1/status", nil); status.body["leads"] != true {
		t.Errorf("the other does not lead: %s", status.text)
	}
}
