package database

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/httpapi"
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

// TestUsersByTheirLastRequest reads the list page by page, also where the last user of a page goes before the next one
// is read. An index has its order.
func TestUsersByTheirLastRequest(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO tiers (domain, name) VALUES ('shop', 'gold')`)
	run(t, d, `INSERT INTO users (domain, name, tier, last_request_at) VALUES ('shop', 'a', NULL, '2026-11-01Z'),
	  ('shop', 'b', 'gold', '2026-11-03Z'), ('shop', 'c', NULL, NULL), ('shop', 'd', 'gold', '2026-11-03Z'),
	  ('shop', 'e', NULL, '2026-11-02Z'), ('shop', 'f', NULL, NULL)`)
	var got []string
	f := UserFilter{Domain: "shop", LastRequest: true}
	for {
		page := must.Get(d.Users(t.Context(), f, 1))(t)
		if len(page) == 0 {
			break
		}
		f.Behind = &UserPlace{page[0].LastRequestAt, page[0].Name}
		got = append(got, f.Behind.Name)
		if f.Behind.Name == "b" || f.Behind.Name == "f" {
			run(t, d, `DELETE FROM users WHERE name = '`+f.Behind.Name+`'`)
		}
	}
	if want := []string{"d", "b", "e", "a", "f", "c"}; !slices.Equal(got, want) {
		t.Errorf("the users are %v, want %v", got, want)
	}
	gold := must.Get(d.Users(t.Context(), UserFilter{Domain: "shop", Tier: "gold", LastRequest: true}, 9))(t)
	if len(gold) != 1 || gold[0].Name != "d" {
		t.Errorf("the users of a tier are %+v, want d, for b is gone", gold)
	}
	tx := must.Get(d.changes.Begin(t.Context()))(t)
	defer tx.Rollback(t.Context())
	must.Get(tx.Exec(t.Context(), `SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off`))(t)
	var plan string
	must.Do(t, tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+lastRequests, "shop", "", "",
		"2026-11-03Z", "d", 2).Scan(&plan))
	steps := stepsOf(t, plan)
	if !slices.ContainsFunc(steps, func(s *planNode) bool { return s.Index == "profiles_last_request" }) ||
		slices.ContainsFunc(steps, func(s *planNode) bool { return s.Type == "Sort" }) {
		t.Errorf("the list is not served by its index:\n%s", plan)
	}
}

// TestATierHasTheTimeOfItsBegin changes users. The time changes with the tier and with nothing else.
func TestATierHasTheTimeOfItsBegin(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO tiers (domain, name) VALUES ('shop', 'gold'), ('shop', 'iron')`)
	gold, iron, many := "gold", "iron", int64(5)
	set := func(r UserRequest) *time.Time {
		return must.Get(d.SetUser(t.Context(), Actor{Name: "ann"}, "shop", "bob", r, nil))(t).UpgradedAt
	}
	if at := set(UserRequest{QuotaDay: &many}); at != nil {
		t.Errorf("without a tier the time is %v", at)
	}
	first := set(UserRequest{Tier: &gold})
	if first == nil {
		t.Fatal("a tier has no time")
	}
	if at := set(UserRequest{Tier: &gold, QuotaDay: &many}); at == nil || !at.Equal(*first) {
		t.Errorf("with another quota the time is %v, want %v", at, first)
	}
	if at := set(UserRequest{Tier: &iron}); at == nil || !at.After(*first) {
		t.Errorf("with another tier the time is %v, want one after %v", at, first)
	}
	if at := set(UserRequest{}); at != nil {
		t.Errorf("without a tier the time is %v", at)
	}
	made := must.Get(d.SetUser(t.Context(), Actor{Name: "ann"}, "shop", "new", UserRequest{Tier: &gold}, nil))(t)
	if made.UpgradedAt == nil {
		t.Error("the tier of a new user has no time")
	}
}

// TestABlockLeavesNoUser blocks and unblocks. Only a user that was made for something else stays.
func TestABlockLeavesNoUser(t *testing.T) {
	d, by := migrated(t), Actor{Name: "ann"}
	tier := "gold"
	run(t, d, `INSERT INTO tiers (domain, name) VALUES ('shop', 'gold')`)
	for name, c := range map[string]struct {
		before, after func(name string) error // the block
		stays         bool
	}{
		"unknown": {},
		"made before": {stays: true, before: func(name string) error {
			_, err := d.SetUser(t.Context(), by, "shop", name, UserRequest{}, nil)
			return err
		}},
		"made since": {stays: true, after: func(name string) error {
			_, err := d.SetUser(t.Context(), by, "shop", name, UserRequest{}, nil)
			return err
		}},
		"with a tier": {stays: true, before: func(name string) error {
			_, err := d.SetUser(t.Context(), by, "shop", name, UserRequest{Tier: &tier}, nil)
			return err
		}},
		"with a key": {stays: true, after: func(name string) error {
			_, err := d.AddKey(t.Context(), by, "shop", KeyRequest{ID: "k", User: name})
			return err
		}},
		"loaded": {stays: true, after: func(name string) error {
			lines := NewUserLines(CsvLines(strings.NewReader("name\n" + name + "\n")))
			_, err := d.LoadUsers(t.Context(), by, "shop", lines)
			return err
		}},
	} {
		who := Subject{"shop", KindUser, name}
		for _, change := range []func(string) error{c.before, func(string) error {
			_, err := d.SetBlock(t.Context(), by, who, BlockRequest{Reason: "abuse"}, nil)
			return err
		}, c.after, func(string) error { return d.Unblock(t.Context(), by, who, nil) }} {
			if change != nil {
				must.Do(t, change(name))
			}
		}
		u, err := d.User(t.Context(), "shop", name)
		if stays := err == nil; stays != c.stays || stays && u.Blocked {
			t.Errorf("%s: after the block the user is %+v (%v), want that it stays: %v", name, u, err, c.stays)
		}
	}
}

// TestReferencesAreToldInWords breaks references between rows.
func TestReferencesAreToldInWords(t *testing.T) {
	d, by := migrated(t), Actor{Name: "ann"}
	run(t, d, `INSERT INTO tiers (domain, name) VALUES ('shop', 'gold'), ('shop', 'iron')`)
	run(t, d, `INSERT INTO users (domain, name, tier) VALUES ('shop', 'bob', 'gold')`)
	run(t, d, `INSERT INTO api_keys (domain, id, digest, prefix, user_name, tier)
	  VALUES ('shop', 'k', sha256('k'), 'spw_', 'bob', 'iron')`)
	nosuch := "nosuch"
	_, unknown := d.SetUser(t.Context(), by, "shop", "bob", UserRequest{Tier: &nosuch}, nil)
	for _, c := range []struct {
		got    error
		status int
		want   string
	}{
		{unknown, http.StatusUnprocessableEntity,
			`tier "nosuch" does not exist in the domain shop: spillway tiers list shows those that do`},
		{d.DeleteTier(t.Context(), by, "shop", "gold", nil), http.StatusConflict,
			`tier "gold" is in use: spillway users list --tier gold shows its users`},
		{d.DeleteTier(t.Context(), by, "shop", "iron", nil), http.StatusConflict,
			`tier "iron" is in use by API keys: spillway keys list shows them`},
		{d.DeleteUser(t.Context(), by, "shop", "bob", nil), http.StatusConflict,
			`user "bob" is in use: it has API keys, valid or revoked. spillway keys list --user bob shows them, and ` +
				`spillway erasures create user/bob removes them with the user`},
	} {
		var problem *httpapi.Problem
		if !errors.As(c.got, &problem) || problem.Status != c.status || problem.Detail != c.want {
			t.Errorf("the error is %v, want %d %s", c.got, c.status, c.want)
		}
	}
}
