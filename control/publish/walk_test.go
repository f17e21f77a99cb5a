package publish

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
)

// has returns what Redis has about an identity.
func (c *capacity) has(kind, name string) string {
	c.Helper()
	text := c.redis.Do(c, "GET", c.publisher.cfg.Keys.Profile("shop", kind, name))
	if text == nil || text == "{}" {
		return ""
	}
	return fmt.Sprint(text)
}

// expect compares what Redis has about an identity with a part of it; empty: nothing.
func (c *capacity) expect(when, kind, name, part string) {
	c.Helper()
	if got := c.has(kind, name); (got == "") != (part == "") || !strings.Contains(got, part) {
		c.Errorf("%s: the profile of %s %s is %q, want %q in it", when, kind, name, got, part)
	}
}

// must fails the test where a step has failed.
func (c *capacity) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// filled is how many users fill makes: more pages than are compared at the same time.
const filled = (walkWorkers+2)*walkPage + walkPage/2

// fill makes users for some pages, keys and blocks, without a change for each.
func (c *capacity) fill() {
	c.Helper()
	c.exec(`INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	c.exec(`SET spillway.log = off`)
	c.exec(fmt.Sprintf(`INSERT INTO users (domain, name, quota_hour, updated_by)
	  SELECT 'shop', 'u' || lpad(n::text, 6, '0'), 5, 'test' FROM generate_series(1, %d) n`, filled))
	c.exec(`INSERT INTO users (domain, name, blocked, block_reason, updated_by)
	  VALUES ('shop', 'zoe', true, 'unpaid', 'test')`)
	c.exec(`INSERT INTO blocks (domain, kind, name, until, updated_by) VALUES ('shop', 'ip', '192.0.2.1',
	  now() + interval '1 hour', 'test'), ('shop', 'tenant', 'acme', NULL, 'test'),
	  ('shop', 'api_key', 'k2', NULL, 'test'), ('shop', 'api_key', 'foreign', NULL, 'test'), ('shop', 'api_key', 'k3',
	  now() - interval '1 hour', 'test')`)
	c.exec(`INSERT INTO api_keys (domain, id, digest, prefix, user_name, limits, created_by)
	  SELECT 'shop', 'k' || n, sha256(n::text::bytea), 'spw_', 'zoe',
	  CASE n WHEN 1 THEN '[{"count": 7, "per": "1m"}]' ELSE '[]' END::jsonb, 'test' FROM generate_series(1, 3) n`)
	c.must(c.publisher.Feed(context.Background(), nil))
}

// TestAWalk puts everything back after Redis was emptied, and lets a change come first.
func TestAWalk(t *testing.T) {
	c := newCapacity(t)
	c.fill()
	for _, one := range []struct {
		name string
		test func(*capacity)
	}{
		{"everything comes back, blocks first", backAgain}, {"a walk and the feed write the same", sameProfiles},
		{"a change overtakes a walk", overtaken},
		{"what was deleted goes", deleted}, {"emptied during a walk", emptiedMeanwhile},
		{"what sidecars ask for comes first", askedFor},
	} {
		t.Run(one.name, func(t *testing.T) {
			d := *c
			d.TB = t
			d.redis.Do(t, "FLUSHALL")
			one.test(&d)
			d.publisher.passed = func(string) {}
		})
	}
}

// keys is how many keys Redis has.
func (c *capacity) keys() string { return fmt.Sprint(c.redis.Do(c, "DBSIZE")) }

// onPages calls f with the number of each page of a walk that has to be written, before it is.
func (c *capacity) onPages(f func(n int64)) {
	var pages atomic.Int64
	c.publisher.passed = func(step string) {
		if step == "compared" {
			f(pages.Add(1))
		}
	}
}

// backAgain walks through a Redis that is empty.
func backAgain(c *capacity) {
	var written atomic.Int64 // pages
	c.onPages(func(n int64) {
		written.Add(1)
		if n == 3 { // after blocks and API keys
			c.expect("before all others", "user", "zoe", "unpaid")
			c.expect("before all others", "ip", "192.0.2.1", "block")
			c.expect("before all others", "tenant", "acme", "block")
			c.expect("before all others", "user", "u000001", "")
		}
	})
	c.must(c.publisher.walk(context.Background(), c.unhurried()))
	c.expect("at the end", "user", "u000001", `"count":5`)
	c.expect("at the end", "user", fmt.Sprintf("u%06d", filled), `"count":5`)
	c.expect("at the end", "api_key", "k1", `"count":7`)
	c.expect("at the end", "api_key", "k2", "block")
	c.expect("at the end", "api_key", "k3", "")
	c.expect("at the end", "api_key", "foreign", "block")
	want := fmt.Sprint(filled + 1 + 3 + 5 + 1) // users, zoe, secrets, other profiles, the index
	if got := c.keys(); got != want {
		c.Errorf("Redis has %s keys, want %s", got, want)
	}
	if got := written.Load(); got < 6 {
		c.Errorf("%d pages were written", got)
	}
	again := c.publisher.mended.Load()
	c.must(c.publisher.walk(context.Background(), c.unhurried()))
	if again != c.publisher.mended.Load() {
		c.Errorf("a second walk mends %d more", c.publisher.mended.Load()-again)
	}
}

// sameProfiles lets the feed write everything, and then a walk compare it.
func sameProfiles(c *capacity) {
	c.exec(`RESET spillway.log`)
	c.exec(`UPDATE profiles SET burst = burst`)
	c.exec(`UPDATE api_keys SET tier = tier`)
	c.must(c.publisher.Feed(context.Background(), nil))
	before := c.publisher.mended.Load()
	c.must(c.publisher.walk(context.Background(), c.unhurried()))
	if more := c.publisher.mended.Load() - before; more > 0 {
		c.Errorf("the walk finds %d profiles that the feed has written otherwise", more)
	}
}

// overtaken stops a walk between reading a page and writing it. Changes of what is on the page, and on one that is read
// later but was not changed when the statement began, are in Redis before the walk continues, and stay.
func overtaken(c *capacity) {
	stopped, goOn := make(chan struct{}), make(chan struct{})
	c.onPages(func(n int64) {
		if n == 3 { // the first page of all users
			close(stopped)
		}
		if n >= 3 {
			<-goOn
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- c.publisher.walk(context.Background(), c.unhurried()) }()
	<-stopped
	c.exec(`RESET spillway.log`)
	last := fmt.Sprintf("u%06d", filled)
	c.exec(`UPDATE users SET blocked = true, block_reason = 'newer' WHERE name IN ('u000007', '` + last + `')`)
	c.exec(`DELETE FROM users WHERE name = 'u000008'`)
	c.must(c.publisher.Feed(context.Background(), nil))
	c.expect("during the walk", "user", "u000007", "newer")
	c.expect("during the walk", "user", last, "newer")
	c.expect("during the walk", "user", "u000006", "")
	close(goOn)
	c.must(<-ended)
	c.expect("after the walk", "user", "u000006", `"count":5`)
	c.expect("after the walk", "user", "u000007", "newer")
	c.expect("after the walk", "user", last, "newer")
	c.expect("after the walk", "user", "u000008", "")
}

// deleted puts a profile back that was deleted: its change is done, so that only the walk can know.
func deleted(c *capacity) {
	c.exec(`RESET spillway.log`)
	c.exec(`INSERT INTO users (domain, name, quota_day) VALUES ('shop', 'gone', 5)`)
	c.exec(`INSERT INTO blocks (domain, kind, name) VALUES ('shop', 'ip', '192.0.2.99')`)
	c.exec(`INSERT INTO api_keys (domain, id, digest, prefix, user_name)
	  VALUES ('shop', 'gone', sha256('gone'), 'spw_', 'gone')`)
	for _, table := range []string{"api_keys WHERE id = 'gone'", "users WHERE name = 'gone'",
		"blocks WHERE kind = 'ip' AND name = '192.0.2.99'"} {
		c.exec(`DELETE FROM ` + table)
	}
	c.must(c.publisher.Feed(context.Background(), nil))
	secret := fmt.Sprintf("%x", sha256.Sum256([]byte("gone")))
	for _, about := range [][2]string{{"user", "gone"}, {"ip", "192.0.2.99"}, {"secret", secret}} {
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile("shop", about[0], about[1]),
			`{"tier":"old","control":true}`)
		defer c.expect("after the walk", about[0], about[1], "")
	}
	c.must(c.publisher.walk(context.Background(), c.unhurried()))
}

// TestABlockOfAnOperatorStays has a block that an operator gave at a sidecar, to a user of whom the control plane keeps
// nothing. The change feed, walks and questions of sidecars leave it, also while profiles are put back. A profile of
// the user takes its place, and an erasure removes it.
func TestABlockOfAnOperatorStays(t *testing.T) {
	c, ctx := newCapacity(t), context.Background()
	block := func(name string) {
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile("shop", "user", name),
			`{"block":{"reason":"abuse"},"by":"operator"}`)
	}
	block("ann")
	block("bob")
	c.exec(`INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	c.exec(`INSERT INTO users (domain, name, updated_by) VALUES ('shop', 'ann', 'test'), ('shop', 'bob', 'test')`)
	c.must(c.publisher.Feed(ctx, nil))
	c.expect("after a change", "user", "ann", "abuse")
	c.must(c.publisher.walk(ctx, c.unhurried()))
	c.expect("after a walk", "user", "ann", "abuse")

	c.must(c.publisher.profiles.BeginFilling(ctx, nil))
	c.exec(`UPDATE users SET burst = NULL WHERE name = 'ann'`)
	c.must(c.publisher.Feed(ctx, nil))
	c.expect("while profiles are put back", "user", "ann", "abuse")
	c.must(c.publisher.profiles.EndFilling(ctx))

	c.exec(`UPDATE users SET quota_hour = 5 WHERE name = 'bob'`)
	c.must(c.publisher.Feed(ctx, nil))
	c.expect("with a quota", "user", "bob", `"count":5`)
	c.exec(`UPDATE users SET quota_hour = NULL WHERE name = 'bob'`)
	c.must(c.publisher.Feed(ctx, nil))
	c.expect("without it", "user", "bob", "")

	c.must(c.publisher.Remove(ctx, []database.Subject{{Domain: "shop", Kind: database.KindUser, Name: "ann"}}))
	c.expect("after its end", "user", "ann", "")
}

// emptiedMeanwhile empties Redis while it is filled, and after it was filled but before that is noted.
func emptiedMeanwhile(c *capacity) {
	ctx := context.Background()
	err := c.publisher.guarded(ctx, func(ctx context.Context) error {
		c.redis.Do(c, "FLUSHALL")
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, errEmptied) {
		c.Errorf("a walk through which Redis was emptied ends with %v", err)
	}
	err = c.publisher.guarded(ctx, func(context.Context) error {
		c.redis.Do(c, "FLUSHALL")
		return nil
	})
	if !errors.Is(err, errEmptied) {
		c.Errorf("a walk at whose end Redis was emptied ends with %v", err)
	}
	marks, err := c.publisher.readMarks(c.Context())
	if marks != (marked{servers: 1, lost: 1}) || err != nil {
		c.Errorf("an empty Redis seems to be filled (%v)", err)
	}
	c.must(c.publisher.guarded(ctx, func(ctx context.Context) error { return c.publisher.walk(ctx, c.unhurried()) }))
	marks, err = c.publisher.readMarks(c.Context())
	if marks != (marked{servers: 1, full: 1}) || err != nil {
		c.Errorf("a Redis that was filled does not seem so (%v)", err)
	}
}

// A table is read by one statement at the pace of Redis, so that it may take longer than other statements.
func TestAWalkMayTakeLong(t *testing.T) {
	t.Parallel()
	const users = 200_000 // more than the buffers of a connection hold
	c := newCapacity(t)
	c.exec(`INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	c.exec(`SET spillway.log = off`)
	c.exec(fmt.Sprintf(`INSERT INTO users (domain, name, quota_hour, updated_by)
	  SELECT 'shop', 'u' || lpad(n::text, 6, '0'), 5, 'test' FROM generate_series(1, %d) n`, users))
	late := make(chan struct{})
	time.AfterFunc(database.StatementWithin+time.Second, func() { close(late) })
	c.onPages(func(int64) { <-late })
	c.must(c.publisher.Walk(context.Background(), nil))
	c.expect("at the end", "user", fmt.Sprintf("u%06d", users), `"count":5`)
}
