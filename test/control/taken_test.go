package control_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestBlocksOfSidecarsAreTakenOver changes blocks at a sidecar while no control runs: of an unknown user, of a user
// whom the control keeps, and the end of a block of the control. The next control has all of them in the database,
// under the name of who made them, and they hold when Redis loses everything.
func TestBlocksOfSidecarsAreTakenOver(t *testing.T) {
	const blocks, users = "/v1/domains/api/blocks/", "/v1/domains/api/users/"
	w := newWorld(t, 1, 2)
	w.must("POST", versions, map[string]any{"text": rulesOf(1000)})
	w.awaitVersion(1)
	w.must("PUT", users+"zoe", map[string]any{"quota_hour": 500})
	w.must("PUT", blocks+"user/ann", map[string]any{"reason": "unpaid"})
	w.must("PUT", blocks+"tenant/acme", map[string]any{})
	w.awaitPasses("ann", false)
	w.controls[0].End(t)
	w.redis.Do(t, "DEL", keys.NewNames("", nil).Shared("claims")) // as its end does
	for _, one := range []struct {
		path string
		body map[string]any
	}{
		{"/v1/block", map[string]any{"user": "mallory", "reason": "abuse"}},
		{"/v1/block", map[string]any{"user": "zoe", "reason": "loop"}},
		{"/v1/unblock", map[string]any{"user": "ann"}},
		{"/v1/unblock", map[string]any{"tenant": "acme"}},
		{"/v1/tier", map[string]any{"tenant": "acme", "tier": "gold"}},
		{"/v1/tier", map[string]any{"tenant": "globex", "tier": "gold"}},
		{"/v1/block", map[string]any{"tenant": "globex", "reason": "abuse", "note": "a partner"}},
	} {
		got := w.send("http://"+w.sidecars[0].Debug, "POST", one.path, one.body)
		if got.status != http.StatusOK {
			t.Fatalf("%s without a control answers %d: %s", one.path, got.status, got.text)
		}
	}
	w.controls[0] = servers.StartControl(t, "CONTROL_DATABASE_URL="+w.postgres.URL, "REDIS_URL="+w.redis.Addr)
	servers.Await(t, "the blocks in the database", func() error {
		for _, name := range []string{"user/mallory", "user/zoe", "tenant/globex"} {
			got := w.call(0, "GET", blocks+name, nil)
			if got.body["updated_by"] != "local" || !strings.Contains("abuse loop", fmt.Sprint(got.body["reason"])) {
				return fmt.Errorf("%s: %s", name, got.text)
			}
		}
		for _, name := range []string{"user/ann", "tenant/acme"} {
			if got := w.call(0, "GET", blocks+name, nil); got.status != http.StatusNotFound {
				return fmt.Errorf("%s is blocked still: %s", name, got.text)
			}
		}
		if left := w.redis.Do(t, "ZCARD", keys.NewNames("", nil).Shared("taken:api")); fmt.Sprint(left) != "0" {
			return fmt.Errorf("%v wait", left)
		}
		return nil
	})
	record := fmt.Sprint(w.redis.Do(t, "GET", keys.NewNames("", nil).Profile("api", "tenant", "globex")))
	for _, text := range []string{`"block":`, `"tier":"gold"`, `"note":"a partner"`, `"control":true`} {
		if !strings.Contains(record, text) {
			t.Errorf("the block of a tenant is taken over, and its record has no %s: %s", text, record)
		}
	}
	w.redis.Do(t, "FLUSHALL")
	w.awaitPasses("mallory", false)
	w.awaitPasses("zoe", false)
	w.awaitPasses("ann", true)
	if got := w.must("GET", users+"zoe", nil); got.body["quota_hour"] != 500.0 {
		t.Errorf("the quota of zoe is lost: %s", got.text)
	}
	audit := w.must("GET", "/v1/audit?domain=api&limit=1000", nil)
	if n := strings.Count(audit.text, `"address": "sidecar"`); n != 5 {
		t.Errorf("the audit has %d changes of sidecars, want 5: %s", n, audit.text)
	}
}

// awaitPasses waits until requests of a user pass on all sidecars, or are refused.
func (w *world) awaitPasses(user string, want bool) {
	w.t.Helper()
	for i := range w.sidecars {
		servers.Await(w.t, fmt.Sprintf("%s passes: %v", user, want), func() error {
			if w.ask(i, user) != want {
				return errors.New("not on sidecar " + fmt.Sprint(i))
			}
			return nil
		})
	}
}
