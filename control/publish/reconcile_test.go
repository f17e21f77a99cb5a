package publish

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/keys"
)

// TestReconcileInAnyOrder stops one Reconcile after each of its steps, and lets the database change there, each time
// with another control that puts the change into Redis. In each order, and with each state, also the same
// one again, Redis has at last what the database has.
func TestReconcileInAnyOrder(t *testing.T) {
	c, ctx := newCapacity(t), t.Context()
	c.exec(`INSERT INTO domains (name) VALUES ('shop')`)
	c.exec(`SET spillway.log = off`) // no other one feeds
	other := New(Config{
		Database: c.DB, Redis: c.client, Keys: keys.NewNames("", nil), Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { other.Close() })
	about := []database.Subject{{Domain: "shop", Kind: database.KindUser, Name: "ann"}}
	states := []string{
		`DELETE FROM profiles`,
		`INSERT INTO users (domain, name, quota_day) VALUES ('shop', 'ann', 5)
		  ON CONFLICT DO NOTHING`,
		`INSERT INTO blocks (domain, kind, name) VALUES ('shop', 'user', 'ann')`,
	}
	change := func(state int, p *Publisher) {
		t.Helper()
		c.exec(states[state])
		if p != nil {
			_, err := p.Reconcile(ctx, c.Tasks, about)
			c.must(err)
		}
	}
	steps := []string{"read", "asked", "written", "read", "asked"}
	for n := range 3 * 3 * 3 {
		for first := range steps {
			for second := first; second < len(steps); second++ {
				c.redis.Do(c, "FLUSHALL")
				change(0, other)
				change(n%3, other)
				change(n/3%3, nil)
				at := 0
				c.publisher.passed = func(string) {
					if at == first {
						change(n/9, other)
					}
					if at == second {
						change((n/3+n)%3, other)
					}
					at++
				}
				_, err := c.publisher.Reconcile(ctx, c.Tasks, about)
				c.must(err)
				c.publisher.passed = func(string) {}
				_, left, err := c.publisher.round(ctx, c.Tasks, about)
				c.must(err)
				if at > second && left > 0 {
					t.Fatalf("the states %s with changes after steps %d and %d: Redis has %s", fmt.Sprint(n), first,
						second,
						c.has("user", "ann"))
				}
			}
		}
	}
}
