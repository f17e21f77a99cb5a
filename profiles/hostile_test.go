package profiles

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestADamagedProfileStaysWhatItWas blocks a user, and damages the profile in Redis: the block holds, and is read again
// once it is mended.
func TestADamagedProfileStaysWhatItWas(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	_, _, err := b.Change(t.Context(), user("eve"), "tester", func(r *Profile) { r.Block = &Block{} })
	if err != nil {
		t.Fatal(err)
	}
	blocked := func() bool {
		r, _ := b.Ask(t.Context(), []Identity{user("eve")})[0].(*Profile)
		return r != nil && r.Block != nil
	}
	good := all.redis.Do(t, "GET", "rec:user:eve").(string)
	for _, damaged := range []string{"", "{", good[:len(good)/2], `"text"`, "[]", "null", "\x00\xff", `{"block":7}`} {
		all.redis.Do(t, "SET", "rec:user:eve", good)
		b.Outdate()
		if !blocked() {
			t.Fatal("the user is not blocked")
		}
		all.redis.Do(t, "SET", "rec:user:eve", damaged)
		for what, doubt := range map[string]func(){"its life": func() { all.skip.Add(int64(positiveLife)) },
			"news": func() { b.Forget("rec:user:eve", "shop|user") }, "a gap": b.Outdate} {
			before := b.Stats().Unreadable
			doubt()
			if !blocked() {
				t.Errorf("after %s, with the profile %q, the user is not blocked", what, damaged)
			}
			if got := b.Stats().Unreadable; got != before+1 {
				t.Errorf("after %s, with the profile %q, %d were unreadable, then %d", what, damaged, before, got)
			}
		}
	}
	all.redis.Do(t, "DEL", "rec:user:eve")
	b.Outdate()
	if blocked() {
		t.Error("the user is blocked without a profile")
	}
}

// served opens a store that serves one domain.
func served(t *testing.T, server *servers.Redis) *Store {
	t.Helper()
	f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}}})
	t.Cleanup(f.Close)
	b := New(Config{Redis: f, Index: "index", Key: func(id *Identity) string { return id.Text() },
		Serves: func(domain string) bool { return domain == "shop" }})
	t.Cleanup(func() { b.Close() })
	b.Ready(t.Context())
	return b
}

// TestNewsOfUnknownDomainsCostNothing: they leave no trace, and the cache keeps what it knows.
func TestNewsOfUnknownDomainsCostNothing(t *testing.T) {
	b := served(t, servers.StartRedis(t))
	before, changes := b.catalog.Load(), b.cache.changes.Load()
	for i := range 10_000 {
		b.Forget(fmt.Sprint("k", i), fmt.Sprintf("dom%d|user", i))
		b.Forget("", fmt.Sprintf("dom%d|ip4/24", i))
		b.Forget("k", fmt.Sprint("no class ", i))
	}
	if b.catalog.Load() != before || b.cache.changes.Load() != changes || len(b.news.added) != 0 {
		t.Errorf("%d classes are remembered, and the cache changed %d times", len(b.news.added),
			b.cache.changes.Load()-changes)
	}
	b.Forget("k", "shop|user")
	if !b.Kinds("shop").Has(User) || len(b.news.added) != 1 {
		t.Error("news of the domain that is served are not taken in")
	}
}

// TestNewsChangeTheCatalogNowAndThen: the first class is in force at once, all that follow within a moment together.
func TestNewsChangeTheCatalogNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{})
		defer b.Close()
		catalogs := map[*catalog]bool{}
		for i := range 1000 {
			b.Forget("k", fmt.Sprintf("dom%d|user", i))
			catalogs[b.catalog.Load()] = true
		}
		if !b.Kinds("dom0").Has(User) || len(catalogs) != 1 {
			t.Errorf("there were %d catalogs, want one with the first class", len(catalogs))
		}
		<-time.After(catalogEvery)
		synctest.Wait()
		if !b.Kinds("dom999").Has(User) || len(*b.catalog.Load()) != 1000 {
			t.Errorf("there are %d classes, want all", len(*b.catalog.Load()))
		}
		b.Forget("k", "last|user")
		<-time.After(catalogEvery)
		synctest.Wait()
		if !b.Kinds("last").Has(User) {
			t.Error("the last class is not known")
		}
		for i := range 2 * maxAdded {
			b.Forget("k", fmt.Sprintf("more%d|user", i))
		}
		if len(b.news.added) > maxAdded || len(b.news.waiting) > maxAdded {
			t.Errorf("%d classes are remembered and %d wait, want at most %d", len(b.news.added),
				len(b.news.waiting), maxAdded)
		}
	})
}

// TestAHugeIndexIsReadInPart: made-up classes are not kept, and those that do not end are found all the same.
func TestAHugeIndexIsReadInPart(t *testing.T) {
	server := servers.StartRedis(t)
	server.Do(t, "EVAL", `for i = 1, 60000 do redis.call('ZADD', 'index', '9999999999999',
	  'made-up' .. i .. '|user') end
		for _, kind in ipairs({'user', 'ip4/24', 'ip4/024', 'ip4/+24', 'ip4/64', 'ip6/64'}) do
			redis.call('ZADD', 'index', '+inf', 'shop|' .. kind)
		end`, "0")
	var problems []error
	f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}}})
	t.Cleanup(f.Close)
	b := New(Config{
		Redis: f, Index: "index", Serves: func(domain string) bool { return domain == "shop" },
		OnError: func(_ string, err error) { problems = append(problems, err) },
	})
	b.Ready(t.Context())
	b.Close()
	if len(*b.catalog.Load()) != 1 || !b.Kinds("shop").Has(User) || len(problems) == 0 {
		t.Errorf("the catalog has %d domains, and the errors are %v", len(*b.catalog.Load()), errors.Join(problems...))
	}
	if got := b.Kinds("shop").Lengths(netip.MustParseAddr("192.0.2.1")); !slices.Equal(got, []int{24}) {
		t.Errorf("the lengths of networks are %v, want 24 alone", got)
	}
}
