package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestARowThatCannotBeReadHoldsUpNoOther has rows that the checks of the database accept, and that cannot be profiles.
// The change feed and a walk leave them out, log each once, and do all others.
func TestARowThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	c, ctx := newCapacity(t), context.Background()
	var log bytes.Buffer
	c.publisher.leftOut = newLeftOut(slog.New(slog.NewTextHandler(&log, nil)))
	c.exec(`INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	c.exec(`INSERT INTO users (domain, name, quota_hour, updated_by) VALUES ('shop', 'zoe', 5, 'test')`)
	c.exec(`INSERT INTO api_keys (domain, id, digest, prefix, user_name, limits, created_by)
	  VALUES ('shop', 'k1', sha256('1'), 'spw_', 'zoe', '[{"count": 5}]', 'test'),
	  ('shop', 'k2', sha256('2'), 'spw_', 'zoe', '[{"count": "five"}]', 'test'), ('shop', 'k3', sha256('3'), 'spw_',
	  'zoe', '[{"count": 7, "per": "1m"}]', 'test')`)
	c.exec(`INSERT INTO blocks (domain, kind, name, updated_by) VALUES ('shop', 'ip', '10.1/16', 'test'), ('shop', 'ip',
	  '192.0.2.1', 'test'), ('shop', 'api_key', 'k1', 'test'), ('shop', 'tenant', 'acme', 'test')`)
	all := func(when string) {
		t.Helper()
		c.expect(when, "user", "zoe", `"count":5`)
		c.expect(when, "ip", "192.0.2.1", "block")
		c.expect(when, "tenant", "acme", "block")
		c.expect(when, "api_key", "k1", "block")
		c.expect(when, "api_key", "k2", "")
		c.expect(when, "api_key", "k3", `"count":7`)
		if n := len(c.redis.Do(c, "KEYS", "*secret*").([]any)); n != 3 {
			t.Errorf("%s: %d keys are known by their digests, want 3", when, n)
		}
	}
	c.must(c.publisher.Feed(ctx, nil))
	if left := c.number(`SELECT count(*) FROM audit WHERE done_at IS NULL`); left != 0 {
		t.Errorf("%d changes are left", left)
	}
	all("after the feed")
	c.redis.Do(c, "FLUSHALL")
	c.must(c.publisher.walk(ctx, c.conn))
	all("after a walk")
	for _, part := range []string{"10.1/16", "k1", "k2"} {
		if n := strings.Count(log.String(), part); n != 1 {
			t.Errorf("%s is logged %d times, want once:\n%s", part, n, log.String())
		}
	}
}

// TestLoggedRowsAreBounded notes more rows than are remembered.
func TestLoggedRowsAreBounded(t *testing.T) {
	u := newLeftOut(slog.New(slog.DiscardHandler))
	for n := range maxLogged + 7 {
		u.note(errors.New(fmt.Sprint("row ", n)))
	}
	if len(u.logged) != 7 {
		t.Errorf("%d rows are remembered, want 7", len(u.logged))
	}
}
