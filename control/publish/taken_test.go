package publish

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
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
