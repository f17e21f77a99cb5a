package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
)

// TestARowThatCannotBeReadHoldsUpNoOther has rows that the checks of the database accept, and that cannot be records. The change feed and a walk leave them out, log
// each once, and do all others.
func TestARowThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	c, ctx := newCapacity(t), context.Background()
	var log bytes.Buffer
	c.publisher.unfit = newUnfit(slog.New(slog.NewTextHandler(&log, nil)))
	c.exec(`INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	c.exec(`INSERT INTO users (domain, name, quota_hour, updated_by) VALUES ('shop', 'zoe', 5, 'test')`)
	c.exec(`INSERT INTO api_keys (domain, id, digest, prefix, user_name, limits, created_by) VALUES ('shop', 'k1', sha256('1'), 'spw_', 'zoe', '[{"count": 5}]', 'test'),
	  ('shop', 'k2', sha256('2'), 'spw_', 'zoe', '[{"count": "five"}]', 'test'), ('shop', 'k3', sha256('3'), 'spw_', 'zoe', '[{"count": 7, "per": "1m"}]', 'test')`)
	c.exec(`INSERT INTO blocks (domain, kind, name, updated_by) VALUES ('shop', 'ip', '10.1/16', 'test'), ('shop', 'ip', '192.0.2.1', 'test'), ('shop', 'api_key', 'k1', 'test'), ('shop', 'tenant', 'acme', 'test')`)
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
	c.must(c.publisher.feed(ctx, c.Changes))
	if left := c.number(`SELECT count(*) FROM outbox WHERE done_at IS NULL`); left != 0 {
		t.Errorf("%d changes are left", left)
	}
	all("after the feed")
	c.redis.Do(c, "FLUSHALL")
	c.must(c.publisher.walk(ctx, c.Changes, false))
	all("after a walk")
	for _, part := range []string{"10.1/16", "k1", "k2"} {
		if n := strings.Count(log.String(), part); n != 1 {
			t.Errorf("%s is logged %d times, want once:\n%s", part, n, log.String())
		}
	}
}

// TestLoggedRowsAreBounded notes more rows than are remembered.
func TestLoggedRowsAreBounded(t *testing.T) {
	u := newUnfit(slog.New(slog.DiscardHandler))
	for n := range maxUnfit + 7 {
		u.note(errors.New(fmt.Sprint("row ", n)))
	}
	if len(u.logged) != 7 {
		t.Errorf("%d rows are remembered, want 7", len(u.logged))
	}
}

// TestTimesWithoutAYear migrates rows whose times no program can read. What had no end has none, what had passed has passed, and sidecars hear of both.
func TestTimesWithoutAYear(t *testing.T) {
	ctx, d := context.Background(), database.open(t)
	_, err := d.Migrate(ctx, 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range append(database.filling[1], database.filling[2]...) {
		database.run(t, d, sql)
	}
	database.run(t, d, `UPDATE users SET blocked = true, blocked_until = 'infinity'`)
	database.run(t, d, `UPDATE blocks SET until = '20000-01-01Z'`)
	database.run(t, d, `UPDATE api_keys SET expires_at = '-infinity'`)
	database.run(t, d, `DELETE FROM outbox`)
	_, err = d.Migrate(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	var right bool
	err = d.Changes.QueryRow(ctx, `SELECT (SELECT blocked AND blocked_until IS NULL AND revision = 2 FROM users) AND (SELECT until IS NULL FROM blocks)
	  AND (SELECT expires_at = '1970-01-01Z' FROM api_keys) AND (SELECT count(*) = 4 FROM outbox)`).Scan(&right)
	if err != nil || !right {
		t.Errorf("the rows are not what they have to be: %v", err)
	}
	for _, at := range []string{"infinity", "-infinity", "10000-01-01Z", "0044-03-15Z BC"} {
		for _, set := range []string{"users SET blocked_until", "blocks SET until", "api_keys SET expires_at"} {
			if _, err := d.Changes.Exec(ctx, `UPDATE `+set+` = '`+at+`'`); err == nil {
				t.Errorf("the database takes %s = %s", set, at)
			}
		}
	}
}
