package publish

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestTheLaterChangeOfABlockHolds lets a sidecar block a user, and the database change the block before or after that:
// what was changed last holds in both places, and is taken over once.
func TestTheLaterChangeOfABlockHolds(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	about := []database.Subject{{Domain: "shop", Kind: database.KindUser, Name: "ann"}}
	for _, one := range []struct {
		at, database string // when the sidecar was asked, and what the database changes
		blocked      bool
	}{
		{"2020-01-01T00:00:00Z", `DELETE FROM blocks`, false},
		{"2120-01-01T00:00:00Z", `DELETE FROM blocks`, true},
		{"2020-01-01T00:00:00Z", `UPDATE profiles SET quota_day = 5`, true},
		{"2020-01-01T00:00:00Z", `UPDATE audit SET done_at = now()`, true},
	} {
		c.redis.Do(c, "FLUSHALL")
		c.exec(`DELETE FROM profiles`)
		c.exec(`INSERT INTO blocks (domain, kind, name) VALUES ('shop', 'user', 'ann')`)
		c.exec(`UPDATE audit SET done_at = now()`)
		c.exec(one.database)
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile("shop", "user", "ann"),
			`{"block":{"reason":"abuse"},"by":"eve","at":"`+one.at+`","taken":true}`)
		for range 2 {
			_, err := c.publisher.Reconcile(ctx, c.Tasks, about)
			c.must(err)
		}
		kept, err := database.Many[database.Block](ctx, c.Tasks, `SELECT domain, kind, name, reason, until, revision,
		  updated_by, updated_at FROM blocks`)
		c.must(err)
		profile := c.has("user", "ann")
		if (len(kept) == 1) != one.blocked || strings.Contains(profile, `"block"`) != one.blocked ||
			strings.Contains(profile, "taken") {
			t.Errorf("%s at %s: the database has %v, Redis %s", one.database, one.at, kept, profile)
		}
		if one.blocked && fmt.Sprint(kept[0].UpdatedBy, kept[0].Reason) != "eveabuse" {
			t.Errorf("%s at %s: the block is %+v", one.database, one.at, kept[0])
		}
	}
}

// TestABlockStaysWhileTheDatabaseRefusesIt: one that a sidecar has made stays in force until the database has it, and
// for good where the database can never have it.
func TestABlockStaysWhileTheDatabaseRefusesIt(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	about := []database.Subject{{Domain: "shop", Kind: database.KindUser, Name: "ann"}}
	for _, one := range []struct {
		code   string
		passes bool
	}{{"53100", true}, {"23514", false}} {
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile("shop", "user", "ann"),
			`{"block":{"reason":"abuse"},"by":"eve","at":"2120-01-01T00:00:00Z","taken":true}`)
		c.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  RAISE EXCEPTION 'no' USING ERRCODE = '` + one.code + `'; END $$`)
		c.exec(`CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON profiles FOR EACH ROW EXECUTE FUNCTION refuse()`)
		_, err := c.publisher.Reconcile(ctx, c.Tasks, about)
		if (err != nil) != one.passes || !strings.Contains(c.has("user", "ann"), "abuse") {
			t.Errorf("%s: Reconcile returns %v, and Redis has %s", one.code, err, c.has("user", "ann"))
		}
		c.exec(`DROP TRIGGER refuse ON profiles`)
		c.exec(`DROP FUNCTION refuse()`)
		_, err = c.publisher.Reconcile(ctx, c.Tasks, about)
		c.must(err)
		if profile := c.has("user", "ann"); !strings.Contains(profile, "abuse") || strings.Contains(profile, "taken") {
			t.Errorf("%s: afterwards Redis has %s", one.code, profile)
		}
		c.exec(`DELETE FROM profiles`)
	}
}

// TestWhatAnOperatorHasSetStaysBesideABlock gives an identity of each kind a tier, a limit and a note at a sidecar, and
// a block there or in the database. The block is taken over, or written, and ends, and comes and ends again: the rest
// stays, and no walk writes what is right already.
func TestWhatAnOperatorHasSetStaysBesideABlock(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	const rest = `"tier":"gold","limits":[{"count":5,"per":60000000000}],"note":"vip","by":"eve",` +
		`"at":"2020-01-01T00:00:00Z"`
	for _, about := range []database.Subject{
		{Domain: "shop", Kind: "user", Name: "ann"}, {Domain: "shop", Kind: "tenant", Name: "acme"},
		{Domain: "shop", Kind: "api_key", Name: "k1"}, {Domain: "shop", Kind: "ip", Name: "192.0.2.0/24"},
	} {
		holds := func(when string, blocked bool) {
			t.Helper()
			_, err := c.publisher.Reconcile(ctx, c.Tasks, []database.Subject{about})
			c.must(err)
			profile := c.has(about.Kind, about.Name)
			for text, want := range map[string]bool{`"tier":"gold"`: true, `"count":5`: true, `"note":"vip"`: true,
				`"block":`: blocked, `"control":true`: blocked, "taken": false} {
				if strings.Contains(profile, text) != want {
					t.Errorf("%s %s: the profile has %s: %v, want %v: %s", about.Kind, when, text, !want, want, profile)
				}
			}
			before := c.publisher.mended.Load()
			c.must(c.publisher.walk(ctx, c.conn))
			if after := c.publisher.mended.Load(); after != before {
				t.Errorf("%s %s: a walk writes %d profiles, which are right", about.Kind, when, after-before)
			}
		}
		key := c.publisher.cfg.Keys.Profile(about.Domain, about.Kind, about.Name)
		c.redis.Do(c, "SET", key, `{`+rest+`,"block":{"reason":"abuse"},"taken":true}`)
		holds("after the control took the block over", true)
		for range 2 {
			c.exec(`DELETE FROM blocks`)
			holds("after the block", false)
			c.exec(fmt.Sprintf(`INSERT INTO blocks (domain, kind, name) VALUES ('shop', '%s', '%s')`, about.Kind,
				about.Name))
			holds("after a block in the database", true)
		}
		c.exec(`DELETE FROM blocks`)
		holds("at last", false)
	}
}

// TestATierOfTheDatabaseIsInPlaceOfAnOperators: what the database has of a user, or no longer has, holds. An operator's
// tier, and a block of the rules that an operator has lifted, hold where it has none.
func TestATierOfTheDatabaseIsInPlaceOfAnOperators(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	c.exec(`INSERT INTO tiers (domain, name) VALUES ('shop', 'gold')`)
	about := []database.Subject{{Domain: "shop", Kind: "user", Name: "ann"}}
	for _, one := range []struct{ database, redis, has, lacks string }{
		{`INSERT INTO users (domain, name, tier) VALUES ('shop', 'ann', 'gold')`,
			`{"tier":"silver","note":"vip","control":true,"operator":true}`, `"tier":"gold","note":"vip"`, "operator"},
		{`INSERT INTO users (domain, name) VALUES ('shop', 'ann')`, `{"tier":"gold","note":"vip","control":true}`,
			`"note":"vip"`, "gold"},
		{`INSERT INTO users (domain, name) VALUES ('shop', 'ann')`, `{"tier":"gold","control":true}`, ``, "gold"},
		{`INSERT INTO users (domain, name) VALUES ('shop', 'ann')`, `{"tier":"silver","control":true,"operator":true}`,
			`{"tier":"silver"}`, "operator"},
		{`INSERT INTO users (domain, name, tier) VALUES ('shop', 'ann', 'gold')`,
			`{"tier":"gold","control":true,"taken":true,"block":{"lifted":true}}`, `"block":{"lifted":true}`, "taken"},
	} {
		c.exec(`DELETE FROM profiles`)
		c.exec(one.database)
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile("shop", "user", "ann"), one.redis)
		for range 2 {
			_, err := c.publisher.Reconcile(ctx, c.Tasks, about)
			c.must(err)
		}
		if profile := c.has("user", "ann"); !strings.Contains(profile, one.has) || strings.Contains(profile, one.lacks) {
			t.Errorf("with %s, %s becomes %s, want %s, and no %s", one.database, one.redis, profile, one.has, one.lacks)
		}
	}
}

// TestNotesOfBlocks lets a sidecar note a block anew while a control takes it over: that note stays for the next time.
// So does a note of a domain that the control does not keep, until it does.
func TestNotesOfBlocks(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	note := func(domain, name, score string) {
		t.Helper()
		text := must.Get(json.Marshal(peers.MissingProfile{Domain: domain, Kind: "user", Name: name}))(t)
		c.redis.Do(c, "SET", c.publisher.cfg.Keys.Profile(domain, "user", name),
			`{"block":{"reason":"`+score+`"},"by":"eve","at":"2120-01-01T00:00:00Z","taken":true}`)
		c.redis.Do(c, "ZADD", c.publisher.cfg.Keys.Shared(profiles.TakenKey(domain)), score, string(text))
	}
	left := func(when, domain string, want int) {
		t.Helper()
		got := fmt.Sprint(c.redis.Do(c, "ZCARD", c.publisher.cfg.Keys.Shared(profiles.TakenKey(domain))))
		if got != fmt.Sprint(want) {
			t.Errorf("%s %s notes of %s are left, want %d", when, got, domain, want)
		}
	}
	note("shop", "ann", "1700000000000001")
	note("shop", "bob", "1700000000000002")
	note("bank", "eve", "1700000000000003")
	c.publisher.passed = func(step string) {
		if step == "taken" {
			note("shop", "bob", "1700000000000004")
		}
	}
	c.must(c.publisher.Take(ctx, nil))
	c.publisher.passed = func(string) {}
	left("after a note that was written anew,", "shop", 1)
	left("without a control of it,", "bank", 1)
	c.must(c.publisher.Take(ctx, nil))
	left("afterwards", "shop", 0)
	if got := c.number(`SELECT count(*) FROM blocks WHERE name = 'bob' AND reason = '1700000000000004'`); got != 1 {
		t.Errorf("the newer block of bob is taken over %d times", got)
	}
	c.exec(`INSERT INTO domains (name) VALUES ('bank')`)
	c.must(c.publisher.Take(ctx, nil))
	left("with a control of it,", "bank", 0)
	if got := c.number(`SELECT count(*) FROM blocks WHERE domain = 'bank' AND name = 'eve'`); got != 1 {
		t.Errorf("the block of a domain that the control keeps now is taken over %d times", got)
	}
}
