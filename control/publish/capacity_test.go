package publish

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/copier"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// capacity is a control plane whose sizes and rates are measured.
type capacity struct {
	testing.TB
	*database.DB
	conn      *pgx.Conn
	postgres  *servers.Postgres
	redis     *servers.Redis
	client    *redis.Client
	publisher *Publisher

	users, events, usage int // how many
}

// newCapacity starts one. make capacity (tag full) takes a hundredth of ten million users; otherwise all is small.
func newCapacity(t testing.TB) *capacity {
	t.Helper()
	ctx := context.Background()
	c := &capacity{TB: t, users: 500, events: 5_000, usage: 5_000, redis: servers.StartRedis(t)}
	var settings []string
	if servers.Full {
		c.users, c.events, c.usage = 100_000, 2_000_000, 1_000_000
		settings = []string{"shared_buffers=512MB", "max_wal_size=4GB", "checkpoint_timeout=30min"}
	}
	c.postgres = servers.StartPostgres(t, settings...)
	c.DB = must.Get(database.Open(c.postgres.URL, database.PoolSizes{}))(t)
	t.Cleanup(c.Close)
	must.Get(c.Migrate(ctx, 0))(t)
	c.conn = c.unhurried()
	c.client = redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{c.redis.Addr}}})
	c.publisher = New(Config{Database: c.DB, Redis: c.client, Keys: keys.NewNames("", nil),
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { c.publisher.Close(); c.client.Close() })
	return c
}

// unhurried is a connection whose statements may take long.
func (c *capacity) unhurried() *pgx.Conn {
	c.Helper()
	conn := must.Get(pgx.Connect(context.Background(), c.postgres.URL))(c)
	c.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (c *capacity) exec(sql string) {
	c.Helper()
	_, err := c.conn.Exec(context.Background(), sql)
	if err != nil {
		c.Fatalf("%s: %v", sql, err)
	}
}

// number reads one number from the database.
func (c *capacity) number(sql string) (n int64) {
	c.Helper()
	err := c.conn.QueryRow(context.Background(), sql).Scan(&n)
	if err != nil {
		c.Fatalf("%s: %v", sql, err)
	}
	return n
}

// spent is what a step took: time, and time of processors, of this program, PostgreSQL and Redis together.
type spent struct{ wall, busy time.Duration }

// timed returns what a step takes that has to succeed.
func (c *capacity) timed(what string, step func() error) spent {
	c.Helper()
	began, before := time.Now(), c.busy()
	err := step()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
	return spent{time.Since(began), c.busy() - before}
}

// busy is the time of processors that this program, PostgreSQL and Redis have used.
func (c *capacity) busy() (all time.Duration) {
	c.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		c.Fatalf("the processes cannot be listed: %v", err)
	}
	own := map[string]bool{strconv.Itoa(os.Getpid()): true, strconv.Itoa(c.postgres.Pid()): true,
		strconv.Itoa(c.redis.Pid()): true}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
		child := fields[1] == strconv.Itoa(c.postgres.Pid())
		if !child && !own[strings.Split(name, "/")[2]] {
			continue
		}
		for _, field := range fields[11:15] { // in user mode, in the kernel, and both of children that have ended
			ticks, _ := strconv.Atoi(field)
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return all
}

// show logs a rate: so many took so long, and what a hundred times as many take of a processor.
func (c *capacity) show(what string, n int, took spent) {
	c.Helper()
	c.Logf("%-44s %9d in %8v, %8v of processors = %7.0f in a second of one; a hundred times as many: %v", what, n,
		took.wall.Round(time.Millisecond), took.busy, float64(n)/took.busy.Seconds(), (100 * took.busy).Round(
			time.Second))
}

// size logs the bytes of each row of a table, and of its indexes.
func (c *capacity) size(table string) {
	c.Helper()
	rows := c.number("SELECT count(*) FROM " + table)
	const whole = `SELECT sum(%[1]s(part))::bigint FROM (SELECT '%[2]s'::regclass AS part UNION SELECT relid
	  FROM pg_partition_tree('%[2]s')) AS parts`
	heap := c.number(fmt.Sprintf(whole, "pg_table_size", table))
	indexes := c.number(fmt.Sprintf(whole, "pg_indexes_size", table))
	c.Logf("%-44s %9d rows: %5.0f bytes each, indexes %5.0f bytes each", table, rows, float64(heap)/float64(rows),
		float64(indexes)/float64(rows))
}

var usedMemory = regexp.MustCompile(`used_memory:(\d+)`)

// memory is what Redis uses, in bytes.
func (c *capacity) memory() int {
	c.Helper()
	found := usedMemory.FindStringSubmatch(fmt.Sprint(c.redis.Do(c, "INFO", "memory")))
	if found == nil {
		c.Fatal("Redis does not show its memory")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// BenchmarkCapacity measures what docs/explain/capacity.md calculates with: make capacity.
func BenchmarkCapacity(b *testing.B) {
	for range b.N {
		c := newCapacity(b)
		c.rules()
		c.profiles()
		c.copies()
		for _, table := range []string{"profiles", "api_keys", "events", "usage_minutes", "usage_hours", "usage_days",
			"endpoint_minutes"} {
			c.size(table)
		}
	}
}

// rules publishes 1,000 rules.
func (c *capacity) rules() {
	c.Helper()
	var text strings.Builder
	text.WriteString("domain: shop\nrules:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - { name: rule-%d, scope: [user, endpoint], match: { endpoints: [\"/v1/things/%d/*\"] "+
			"}, limit: %d/1m }\n", i, i, i+1)
	}
	ctx := context.Background()
	kept := c.timed("keep a version", func() error {
		_, _, err := c.AddVersion(ctx, database.Actor{Name: "capacity"}, "shop", text.String(), "", true, nil)
		return err
	})
	published := c.timed("publish", func() error { return c.publisher.publish(ctx, true) })
	document := c.redis.Do(c, "HSTRLEN", c.publisher.cfg.Keys.Shared("rules"), "shop")
	c.Logf("%-44s %9d kept in %v (%v of processors), published in %v; %v bytes in Redis", "rules of a version", 1000,
		kept.wall.Round(time.Millisecond), kept.busy, published.wall.Round(time.Millisecond), document)
}

// profiles loads users and keys by COPY, puts them into Redis, and walks.
func (c *capacity) profiles() {
	c.Helper()
	ctx, keys := context.Background(), c.users/10
	before := c.memory()
	loaded := c.timed("load users", func() error {
		_, err := c.conn.CopyFrom(ctx, pgx.Identifier{"profiles"}, []string{"domain", "name", "quota_month",
			"updated_by"}, pgx.CopyFromSlice(c.users, func(i int) ([]any, error) {
			return []any{"shop", fmt.Sprintf("user-%08d", i), 1_000_000, "capacity"}, nil
		}))
		return err
	})
	c.show("users loaded by COPY", c.users, loaded)
	c.exec(fmt.Sprintf(`INSERT INTO api_keys (domain, id, digest, prefix, user_name, created_by)
	  SELECT 'shop', 'key-' || i, sha256(i::text::bytea), 'spw_', 'user-' || lpad(i::text, 8, '0'), 'capacity'
	  FROM generate_series(0, %d) i`, keys-1))
	all := c.users + keys
	c.show("profiles put into Redis by the change feed", all,
		c.timed("feed", func() error { return c.publisher.Feed(ctx, nil) }))
	c.Logf("%-44s %9d profiles: %.0f bytes each", "memory of Redis", all, float64(c.memory()-before)/float64(all))
	c.size("audit")
	c.timed("walk", func() error { return c.publisher.walk(ctx, c.conn) })
	c.show("profiles compared by a walk, none differs", all,
		c.timed("walk", func() error { return c.publisher.walk(ctx, c.conn) }))
	c.redis.Do(c, "FLUSHALL")
	c.askedFor(min(c.users, maxMissing))
	c.redis.Do(c, "FLUSHALL")
	c.show("profiles put back after a flush", all,
		c.timed("walk", func() error { return c.publisher.walk(ctx, c.conn) }))
	if n := fmt.Sprint(c.redis.Do(c, "DBSIZE")); n != fmt.Sprint(all+2) {
		c.Errorf("after the walk Redis has %s keys, want %d profiles, the rules and the index", n, all)
	}
}

// askedFor puts profiles back that sidecars ask for.
func (c *capacity) askedFor(count int) {
	c.Helper()
	ctx := context.Background()
	c.must(c.publisher.profiles.BeginFilling(ctx, nil))
	for i := range count {
		c.publisher.missing.ask(
			[]database.Subject{{Domain: "shop", Kind: database.KindUser, Name: fmt.Sprintf("user-%08d", c.users-1-i)}})
	}
	c.show("profiles put back that sidecars ask for", count,
		c.timed("put back", func() error { return c.publisher.putBack(ctx) }))
	c.must(c.publisher.profiles.EndFilling(ctx))
	if n := fmt.Sprint(c.redis.Do(c, "DBSIZE")); n != fmt.Sprint(count+1) {
		c.Errorf("Redis has %s keys, want %d profiles and the index", n, count)
	}
}

// copies copies events and usage from the streams of Redis.
func (c *capacity) copies() {
	c.Helper()
	const batch = 200 // rows of an entry
	now := time.Now()
	c.show("users named in the record", c.users, c.record("names of all users", func() error {
		if n := c.number("SELECT count(*) FROM users WHERE identity IS NULL"); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	}))
	c.stream("events copied from Redis", journal.EventsStream, c.events/batch, batch, func(n int) []byte {
		rows := make([]journal.Event, batch)
		for i := range rows {
			user := (n*batch + i) * 7919 % c.users
			rows[i] = journal.Event{At: now.Add(time.Duration(n*batch+i-c.events) * time.Millisecond).UnixMicro(),
				Domain: "shop", Outcome: []string{"refused", "allowed"}[i%2], Rule: fmt.Sprintf("rule-%d", user%1000),
				Identity: fmt.Sprintf("user:user-%08d", user), IP: fmt.Sprintf("192.0.2.%d", user%250), Method: "GET",
				Endpoint: fmt.Sprintf("/v1/things/%d", user%200), Count: 100, Limit: 100, Cost: 1, Status: 429,
				RetryAfter: 1.5, Latency: 300, Weight: 1}
		}
		return (&journal.Rows{Events: rows}).Marshal()
	})
	c.stream("rows of usage copied from Redis", journal.UsageStream, c.usage/batch, batch, func(n int) []byte {
		u := journal.Rows{}
		for i := range batch { // each user with the rule "" and with one rule, in ten minutes
			at := n*batch/2 + i/2
			u.Identities = append(u.Identities, journal.Row{Minute: now.Unix()/60 - int64(at*10/max(c.usage/2, 1)),
				Domain: "shop", Rule: []string{"", "rule-1"}[i%2],
				Name: fmt.Sprintf("user:user-%08d", at*7919%c.users), Outcome: "allowed", Requests: 10, Cost: 10})
		}
		sketch := journal.Sketch{}
		sketch.Add(300*time.Microsecond, 10)
		u.Endpoints = append(u.Endpoints, journal.Row{Minute: now.Unix() / 60, Domain: "shop", Rule: fmt.Sprintf(
			"rule-%d", n%1000), Name: "/v1/things", Outcome: "allowed", Requests: 10, Cost: 10, Latency: sketch})
		return u.Marshal()
	})
}

// stream appends entries as a sidecar does, and then lets a recorder copy them.
func (c *capacity) stream(what, name string, entries, batch int, rows func(n int) []byte) {
	c.Helper()
	key := c.publisher.cfg.Keys.Shared(name)
	const together = 500
	var took spent
	for first := 0; first < entries; first += together {
		for n := first; n < min(first+together, entries); n++ {
			e := journal.Entry{Sidecar: "capacity-5f3a9c", Sequence: int64(n + 1), Region: "eu", Rows: rows(n)}
			c.redis.Do(c, append([]string{"XADD", key, "*"}, e.Fields()...)...)
		}
		once := c.record("an empty stream", func() error {
			if n := fmt.Sprint(c.redis.Do(c, "XLEN", key)); n != "0" {
				return fmt.Errorf("%s entries are left", n)
			}
			return nil
		})
		took.wall, took.busy = took.wall+once.wall, took.busy+once.busy
	}
	c.show(what, entries*batch, took)
}

// ages is longer than the test needs anything.
const ages = 1000 * 24 * time.Hour

// record lets a recorder work until that is done, and returns how long it takes.
func (c *capacity) record(what string, done func() error) spent {
	c.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := copier.New(copier.Config{Connect: c.Connect, Redis: c.client, Keys: c.publisher.cfg.Keys,
		Log: slog.New(slog.DiscardHandler), Keep: copier.Keep{Hours: ages, Days: ages, Audit: ages}})
	ended := make(chan struct{})
	took := c.timed(what, func() error {
		go func() { _ = r.Run(ctx, nil); close(ended) }()
		servers.Await(c, what, done)
		return nil
	})
	stop()
	<-ended
	return took
}
