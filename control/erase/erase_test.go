package erase

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// open makes an empty database.
func open(t *testing.T) *database.DB {
	t.Helper()
	d := must.Get(database.Open(servers.Database(t).URL, database.PoolSizes{}))(t)
	t.Cleanup(d.Close)
	return d
}

func run(t *testing.T, d *database.DB, sql string) {
	t.Helper()
	_, err := d.Tasks.Exec(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestTheAuditMayOnlyBeRedacted holds the trigger of the audit against updates that it must refuse, and the one that it
// must let pass.
func TestTheAuditMayOnlyBeRedacted(t *testing.T) {
	ctx, d := context.Background(), open(t)
	must.Get(d.Migrate(ctx, 0))(t)
	run(t, d, `INSERT INTO audit (who, address, action, domain, kind, name, before)
	  VALUES ('ann', '', 'set', 'shop', 'user', 'bob', '{"tier": "gold"}')`)
	e, err := d.AskErasure(ctx, database.Actor{Name: "ann"},
		database.Subject{Domain: "shop", Kind: "user", Name: "bob"})
	if err != nil || e.ID != 1 || e.State != "open" {
		t.Fatalf("%+v, %v", e, err)
	}
	again, err := d.AskErasure(ctx, database.Actor{Name: "ann"},
		database.Subject{Domain: "shop", Kind: "user", Name: "bob"})
	if err != nil || again.ID != e.ID {
		t.Errorf("the same erasure asked twice: %+v, %v", again, err)
	}
	run(t, d, `INSERT INTO erasures (domain, kind, name, asked_by) VALUES ('other', 'user', 'bob', 'ann')`)
	const redacted = `name = 'erasure 1', before = NULL, after = '{"erasure": 1}'`
	for _, sql := range []string{
		`UPDATE audit SET name = 'carl'`,
		`UPDATE audit SET before = NULL`,
		`UPDATE audit SET name = 'erasure 1', before = NULL`,
		`UPDATE audit SET name = 'erasure 1', after = '{"erasure": 1}' WHERE before IS NOT NULL`,
		`UPDATE audit SET name = 'erasure 2', before = NULL, after = '{"erasure": 2}'`,
		`UPDATE audit SET name = 'erasure 3', before = NULL, after = '{"erasure": 3}'`,
		`UPDATE audit SET who = 'eve', ` + redacted,
		`UPDATE audit SET at = now() - interval '1 day', ` + redacted,
		`UPDATE audit SET action = 'nothing', ` + redacted,
		`DELETE FROM audit`,
		`TRUNCATE audit`,
	} {
		if _, err := d.Tasks.Exec(ctx, sql); err == nil {
			t.Errorf("the database takes %s", sql)
		}
	}
	run(t, d, `UPDATE audit SET `+redacted+` WHERE name = 'bob'`)
	open, err := (&Eraser{Database: d}).open(ctx)
	if err == nil {
		err = (&Eraser{Database: d}).finish(ctx, open)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Tasks.Exec(ctx, `UPDATE audit SET `+redacted); err == nil {
		t.Error("an erasure that has ended may redact")
	}
	for _, sql := range []string{
		`SELECT count(*) FROM audit WHERE audit::text LIKE '%bob%'`,
		`SELECT count(*) FROM erasures WHERE domain = 'shop' AND erasures::text LIKE '%bob%'`,
	} {
		var n int
		if err := d.Tasks.QueryRow(ctx, sql).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d, %v", sql, n, err)
		}
	}
}

// TestWhichCountersNameAnIdentity holds keys of counters against an identity.
func TestWhichCountersNameAnIdentity(t *testing.T) {
	plain := keys.NewNames("p:", nil)
	ann := counterNameOf(plain, "shop", "user", "ann")
	for key, want := range map[string]bool{
		"p:rl1:{shop|ann}:user:per-user:1:tb":           true,
		"p:rl1:{shop|ann|/x}:user+endpoint:r:1:tb":      true,
		"p:rl1:{shop|acme|ann}:tenant+user:r:1:tb":      true,
		"p:rl1:{shop}~|ann:user:r:1:tb":                 true,
		"p:rl1:{shop|ann}:~user:hour:tb":                true,
		"p:rl1:{shop|x|ann}:path/user:1:fw":             true, // a descriptor tree
		"p:rl1:{shop|ann}:client:r:1:tb":                true,
		"p:rl1:{shop|ann}:tier:r:1:tb":                  false, // a tier of that name
		"p:rl1:{shop|ann|x}:tenant+user:r:1:tb":         false,
		"p:rl1:{shop|anna}:user:r:1:tb":                 false,
		"p:rl1:{shops|ann}:user:r:1:tb":                 false,
		"p:rl1:{shop}:global:r:1:tb":                    false,
		"p:rec1:{shop|ann}:user":                        false,
		"q:rl1:{shop|ann}:user:per-user:1:tb":           false,
		"p:rl1:{shop|192.0.2.1|ann}:ip+endpoint:r:1:tb": false,
	} {
		if got := ann.in(key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	secret := keys.NewNames("", []byte("a secret of sixteen bytes"))
	hashed := counterNameOf(secret, "shop", "user", "ann")
	if key := hashed.head + "|" + hashed.value + "}:user:r:1:tb"; !hashed.in(key) || hashed.value == "ann" {
		t.Errorf("%s is not found", key)
	}
}

// TestWhatMentionsAPerson holds rows of streams against names.
func TestWhatMentionsAPerson(t *testing.T) {
	names := []string{"user:ann", "spw_abc"}
	for text, want := range map[string]bool{
		`{"identities":[[29000000,"shop","","user:ann","allowed",1,1]]}`: true,
		`[{"identity":"user:\u0061nn"}]`:                                 true,
		`[{"identity":"user:anna","api_key":"spw_abc"}]`:                 true,
		`[{"identity":"user:anna"}]`:                                     false,
		`{"user:ann":1}`:                                                 false,
		`not JSON`:                                                       true,
		``:                                                               false,
	} {
		if got := mentions([]byte(text), names); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// eraser makes one that has no archive.
func eraser(t *testing.T, d *database.DB) *Eraser {
	t.Helper()
	shared := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{servers.StartRedis(t).Addr}}})
	t.Cleanup(shared.Close)
	keys, log := keys.NewNames("", nil), slog.New(slog.DiscardHandler)
	publisher := publish.New(publish.Config{Database: d, Redis: shared, Keys: keys, Log: log})
	t.Cleanup(func() { publisher.Close() })
	return &Eraser{Database: d, Publisher: publisher, Redis: shared, Keys: keys, Log: log}
}

// TestATenantIsErasedFromTheEventsOfItsUsers leaves the events of other tenants, of the same user too.
func TestATenantIsErasedFromTheEventsOfItsUsers(t *testing.T) {
	d, ctx := open(t), t.Context()
	must.Get(d.Migrate(ctx, 0))(t)
	run(t, d, `CREATE TABLE events_all PARTITION OF events FOR VALUES FROM (MINVALUE) TO (MAXVALUE)`)
	run(t, d, `INSERT INTO events SELECT now(), 'one', 1, n, 'shop', 'refused', '', 'user:ann', '', '', '', '', 0, 0, 1,
	  429, 0, 0, '', 1, CASE n WHEN 1 THEN 'tenant:acme' ELSE 'tenant:other' END FROM generate_series(1, 3) AS n`)
	must.Get(d.AskErasure(ctx, database.Actor{Name: "ann"},
		database.Subject{Domain: "shop", Kind: "tenant", Name: "acme"}))(t)
	must.Do(t, eraser(t, d).Run(ctx, nil))
	var left, named int
	err := d.Tasks.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE tenant = 'tenant:acme') FROM events`).
		Scan(&left, &named)
	if err != nil || left != 2 || named != 0 {
		t.Errorf("%d events are left, %d of the tenant: %v", left, named, err)
	}
}

// PostgreSQL is silent while a statement runs, for longer than other statements may take.
func TestAnErasureMayTakeLong(t *testing.T) {
	t.Parallel()
	d, ctx := open(t), t.Context()
	must.Get(d.Migrate(ctx, 0))(t)
	run(t, d, `CREATE TABLE identity_hours_all PARTITION OF identity_hours FOR VALUES FROM (MINVALUE) TO (MAXVALUE)`)
	run(t, d, `INSERT INTO identity_hours (at, domain, identity, samples, latencies)
	  VALUES (date_trunc('hour', now(), 'UTC'), 'shop', 'user:ann', 1, '{1}')`)
	run(t, d, fmt.Sprintf(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
	  BEGIN PERFORM pg_sleep(%f); RETURN NULL; END $$`, (database.AnswerWithin+time.Second).Seconds()))
	run(t, d, `CREATE TRIGGER slow AFTER DELETE ON identity_hours EXECUTE FUNCTION slow()`)
	x := eraser(t, d)
	_, err := d.AskErasure(ctx, database.Actor{Name: "ann"},
		database.Subject{Domain: "shop", Kind: "user", Name: "ann"})
	if err == nil {
		err = x.Run(ctx, nil)
	}
	var left int
	if err == nil {
		err = d.Tasks.QueryRow(ctx, `SELECT count(*) FROM identity_hours`).Scan(&left)
	}
	if err != nil || left > 0 {
		t.Errorf("%d rows of the person are left: %v", left, err)
	}
}
