package database

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// migrated opens a database with the newest schema and the domain shop.
func migrated(t *testing.T) *DB {
	t.Helper()
	d := open(t)
	must.Get(d.Migrate(t.Context(), 0))(t)
	run(t, d, `INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	return d
}

// Two callers send if-none-match: * at the same time, for what is not in the database yet.
func TestOneOfTwoMakesIt(t *testing.T) {
	d := migrated(t)
	none := new(int64)
	for what, make := range map[string]func(ctx context.Context, who Actor, name string) error{
		"a user": func(ctx context.Context, who Actor, name string) error {
			_, err := d.SetUser(ctx, who, "shop", name, UserRequest{}, none)
			return err
		},
		"a tier": func(ctx context.Context, who Actor, name string) error {
			_, err := d.SetTier(ctx, who, "shop", name, TierRequest{}, none)
			return err
		},
		"a block": func(ctx context.Context, who Actor, name string) error {
			_, err := d.SetBlock(ctx, who, Subject{"shop", "tenant", name}, BlockRequest{}, none)
			return err
		},
	} {
		for n := range 50 {
			var both sync.WaitGroup
			var made [2]error
			for i := range made {
				both.Go(func() {
					made[i] = make(t.Context(), Actor{Name: fmt.Sprint("caller ", i)},
						fmt.Sprint("name ", n))
				})
			}
			both.Wait()
			if (made[0] == nil) == (made[1] == nil) {
				t.Errorf("%s, attempt %d: the callers got %v and %v, want that one makes it and the other has a "+
					"conflict", what, n, made[0], made[1])
				break
			}
		}
	}
}

// A quota that sidecars would leave out is refused, by the API and in a load.
func TestQuotasThatAreTakenAreLimits(t *testing.T) {
	d := migrated(t)
	whole := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		ask  UserRequest
		good bool
	}{
		"quotas of all lengths": {UserRequest{QuotaHour: whole(5), QuotaDay: whole(50),
			QuotaMonth: whole(500), Burst: whole(10)}, true},
		"the largest quota":                  {UserRequest{QuotaDay: whole(limit.MaxCount)}, true},
		"a burst that takes a hundred years": {UserRequest{QuotaHour: whole(1), Burst: whole(1_000_000)}, false},
		"a burst above the most": {UserRequest{QuotaHour: whole(1_000_000_000),
			Burst: whole(limit.MaxCount + 1)}, false},
		"a quota above the most":            {UserRequest{QuotaDay: whole(limit.MaxCount + 1)}, false},
		"a quota of a month above the most": {UserRequest{QuotaMonth: whole(limit.MaxCount + 1)}, false},
	} {
		_, err := d.SetUser(t.Context(), Actor{Name: "ann"}, "shop", name, c.ask, nil)
		wrong := (&userLine{Name: name, UserRequest: c.ask}).check(1)
		if (err == nil) != c.good || (wrong == nil) != c.good {
			t.Errorf("%s: the API says %v, a load %v; want that it is taken: %v", name, err, wrong, c.good)
		}
	}
}
