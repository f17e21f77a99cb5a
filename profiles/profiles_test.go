package profiles

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// stores are several that share a Redis, and get news of each other's changes unless cut.
type stores struct {
	redis *servers.Redis
	mu    sync.Mutex // guards all and cut
	all   []*Store
	cut   bool
	skip  atomic.Int64 // by which the clock is ahead, in ns
}

func (b *stores) now() time.Time { return time.Now().Add(time.Duration(b.skip.Load())) }

func (b *stores) open(t *testing.T, bytes int64) *Store {
	t.Helper()
	f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{b.redis.Addr}}})
	t.Cleanup(f.Close)
	store := New(Config{
		Redis: f, Index: "index", Key: func(id *Identity) string { return "rec:" + id.Kind.String() + ":" + id.Text() },
		Bytes: bytes, Patience: 2 * time.Second,
		Now: b.now, Publish: func(_ context.Context, key, class string) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, other := range b.all {
				if !b.cut {
					other.Forget(key, class)
				}
			}
			return nil
		},
	})
	t.Cleanup(func() { store.Close() })
	store.Ready(t.Context())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, store)
	return store
}

func user(name string) Identity { return Identity{Domain: "shop", Kind: User, Name: name} }

// tierOf is the tier of a user, as a decision finds it.
func tierOf(t *testing.T, b *Store, name string) string {
	t.Helper()
	id := user(name)
	if !b.Kinds("shop").Has(User) {
		return "no profiles"
	}
	value, fresh := b.Cached(&id)
	if !fresh {
		value = b.Ask(t.Context(), []Identity{id})[0]
	}
	if value == nil {
		return "none"
	}
	return value.(*Profile).Tier
}

func give(t *testing.T, b *Store, name, tier string) {
	t.Helper()
	_, _, err := b.Change(t.Context(), user(name), "tester", func(r *Profile) { r.Tier = tier })
	if err != nil {
		t.Fatal(err)
	}
}

func expectTier(t *testing.T, b *Store, name, want string) {
	t.Helper()
	if got := tierOf(t, b, name); got != want {
		t.Errorf("tier of %s = %q, want %q", name, got, want)
	}
}

func TestAChangeIsSeenByEveryStore(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	one, other := all.open(t, 0), all.open(t, 0)
	expectTier(t, other, "alice", "no profiles")
	give(t, one, "alice", "gold")
	expectTier(t, one, "alice", "gold")
	expectTier(t, other, "alice", "gold")
	give(t, other, "alice", "silver")
	expectTier(t, one, "alice", "silver")
	give(t, other, "alice", "")
	expectTier(t, one, "alice", "none")
	fresh := all.open(t, 0)
	expectTier(t, fresh, "bob", "none")
}

// TestATierBesideABlockOfTheControlIsAnOperators changes profiles that a control keeps: where that is about the tier or
// limits, the profile names them an operator's, so that the control leaves them there.
func TestATierBesideABlockOfTheControlIsAnOperators(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	for name, changed := range map[string]func(r *Profile){
		"tier":   func(r *Profile) { r.Tier = "gold" },
		"limits": func(r *Profile) { r.Limits = []Limit{{Count: 1, Per: 1}} },
		"note":   func(r *Profile) { r.Note = "vip" }, "block": func(r *Profile) { r.Block = &Block{Reason: "more"} },
	} {
		all.redis.Do(t, "SET", "rec:user:alice", `{"block":{"reason":"abuse"},"tier":"silver","control":true}`)
		_, after, err := b.Change(t.Context(), user("alice"), "tester", changed)
		if err != nil || after.Operator != (name == "tier" || name == "limits") {
			t.Errorf("after a change of the %s the profile is %+v (%v)", name, after, err)
		}
	}
}

func TestALostMessageCostsOneCacheLifeAtMost(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	one, other := all.open(t, 0), all.open(t, 0)
	give(t, one, "alice", "gold")
	expectTier(t, other, "alice", "gold")
	expectTier(t, other, "bob", "none")
	all.cut = true
	give(t, one, "alice", "silver")
	give(t, one, "bob", "gold")
	expectTier(t, other, "alice", "gold")
	expectTier(t, other, "bob", "none")
	all.skip.Store(int64(negativeLife))
	expectTier(t, other, "bob", "gold")
	expectTier(t, other, "alice", "gold")
	all.skip.Store(int64(positiveLife))
	expectTier(t, other, "alice", "silver")
	// A gap in the messages makes all of it out of date.
	give(t, one, "alice", "bronze")
	other.Outdate()
	expectTier(t, other, "alice", "bronze")
}

func TestWhatIsCachedHoldsWithoutRedis(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	give(t, b, "alice", "gold")
	expectTier(t, b, "alice", "gold")
	all.redis.Kill(t)
	b.Outdate()
	all.skip.Store(int64(time.Hour))
	expectTier(t, b, "alice", "gold")
	expectTier(t, b, "carol", "none")
	_, _, err := b.Change(t.Context(), user("alice"), "tester", func(r *Profile) { r.Tier = "x" })
	if err == nil {
		t.Error("a change without Redis seems to have worked")
	}
}

func TestChangesDoNotOverwriteEachOther(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	one, other := all.open(t, 0), all.open(t, 0)
	var done sync.WaitGroup
	done.Go(func() {
		for range 20 {
			give(t, one, "alice", "gold")
		}
	})
	done.Go(func() {
		_, _, err := other.Change(context.Background(), user("alice"), "tester", func(r *Profile) { r.Note = "noted" })
		for errors.Is(err, errBusy) {
			_, _, err = other.Change(context.Background(), user("alice"), "tester",
				func(r *Profile) { r.Note = "noted" })
		}
	})
	done.Wait()
	r, err := one.Get(t.Context(), user("alice"))
	if err != nil || r == nil || r.Tier != "gold" || r.Note != "noted" {
		t.Errorf("the profile is %+v, %v, want both changes", r, err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	const most = 1 << 20
	b := all.open(t, most)
	give(t, b, "alice", "gold")
	var ids []Identity
	for n := range 20_000 {
		ids = append(ids, user(fmt.Sprintf("user-%d-%s", n, strings.Repeat("x", 100))))
	}
	b.Ask(t.Context(), ids)
	names := len(b.cache.present.names) + len(b.cache.absent.names)
	if s := b.Stats(); s.Bytes > most || s.Drops == 0 || int64(names) != s.Entries {
		t.Errorf("after %d identities: %+v and %d names, want at most %d bytes", len(ids), s, names, most)
	}
}

func TestABlockWithAnEndGoesByItself(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	until := time.Now().Add(time.Hour)
	_, _, err := b.Change(t.Context(), user("eve"), "tester", func(r *Profile) { r.Block = &Block{Until: until} })
	if err != nil {
		t.Fatal(err)
	}
	if left := all.redis.Do(t, "PTTL", "rec:user:eve").(int64); left <= 0 || left > int64(time.Hour/time.Millisecond) {
		t.Errorf("the profile of a block of an hour lives for %d ms", left)
	}
	give(t, b, "eve", "gold")
	if left := all.redis.Do(t, "PTTL", "rec:user:eve"); left != int64(-1) {
		t.Errorf("a profile with a tier lives for %v ms, want for ever", left)
	}
}

func TestNetworksHaveKindsOfTheirOwn(t *testing.T) {
	b := New(Config{})
	for _, text := range []string{"192.0.2.0/24", "192.0.2.7/32", "2001:db8::/32"} {
		id := Identity{Domain: "shop", Kind: Network, Network: netip.MustParsePrefix(text)}
		_, _, err := b.Change(t.Context(), id, "tester", func(r *Profile) { r.Block = &Block{} })
		if err != nil {
			t.Fatal(err)
		}
	}
	k := b.Kinds("shop")
	if diff := cmp.Diff([]int{24, 32}, k.Lengths(netip.MustParseAddr("192.0.2.9"))); diff != "" || k.Has(User) {
		t.Errorf("lengths of IPv4 networks: %s", diff)
	}
	if diff := cmp.Diff([]int{32}, k.Lengths(netip.MustParseAddr("2001:db8::1"))); diff != "" {
		t.Errorf("lengths of IPv6 networks: %s", diff)
	}
	if b.Kinds("other") != nil {
		t.Error("a domain without profiles has kinds")
	}
}

// TestLookupsAreCountedByDomain: those of a domain count on when its kinds of profiles are read again. A domain without
// profiles looks up nothing.
func TestLookupsAreCountedByDomain(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 0)
	for _, domain := range []string{"shop", "mail"} {
		_, _, err := b.Change(t.Context(), Identity{Domain: domain, Kind: User, Name: "eve"}, "tester",
			func(r *Profile) { r.Tier = "gold" })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, domain := range []string{"shop", "mail", "shop", "none", "shop"} {
		must.Do(t, b.readIndex(t.Context()))
		b.Look(t.Context(), domain, &descriptors.Who{User: "ann", Tenant: "acme"}, &descriptors.Profiles{})
	}
	got := map[string]Use{}
	for _, u := range b.Uses() {
		got[u.Domain] = u
	}
	want := map[string]Use{"shop": {Domain: "shop", Hits: 2, Misses: 1}, "mail": {Domain: "mail", Misses: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := b.Stats(); s.Hits != 2 || s.Misses != 2 {
		t.Errorf("%d hits and %d misses, want the sums of all domains", s.Hits, s.Misses)
	}
}

// TestBlocksThatHaveEndedMakeRoom fills a store without Redis with blocks of an hour. There is room for more once they
// have ended.
func TestBlocksThatHaveEndedMakeRoom(t *testing.T) {
	now := time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)
	b := New(Config{Now: func() time.Time { return now }})
	block := func(name string) error {
		_, _, err := b.Change(t.Context(), user(name), "tester",
			func(r *Profile) { r.Block = &Block{Until: now.Add(time.Hour)} })
		return err
	}
	give(t, b, "alice", "gold")
	for n := range maxLocal - 1 {
		must.Do(t, block(fmt.Sprint("user-", n)))
	}
	if block("mallory") == nil {
		t.Fatal("a full store takes one more")
	}
	now = now.Add(time.Hour)
	if err := block("mallory"); err != nil {
		t.Error(err)
	}
	expectTier(t, b, "alice", "gold")
	if len(b.local) != 2 {
		t.Errorf("%d profiles are kept, want alice's and mallory's", len(b.local))
	}
}

// mend writes what differs, announces it, and returns how many profiles that are.
func mend(t *testing.T, b *Store, wanted []Swap) int {
	t.Helper()
	var ids, written []Identity
	for _, s := range wanted {
		ids = append(ids, s.Identity)
	}
	had := must.Get(b.Read(t.Context(), ids))(t)
	var differ []Swap
	for i, s := range wanted {
		s.Was = had[i]
		if s.Merge() {
			differ, written = append(differ, s), append(written, s.Identity)
		}
	}
	done, err := b.Swap(t.Context(), differ)
	if err == nil {
		err = b.Announce(t.Context(), written)
	}
	if err != nil || done != len(differ) {
		t.Fatalf("of %d profiles %v are written: %v", len(differ), done, err)
	}
	return len(differ)
}

// TestManyProfilesAreAnnouncedOnce writes few profiles and many: a few are announced one by one, and many at once.
// Either way what sidecars knew is looked up again.
func TestManyProfilesAreAnnouncedOnce(t *testing.T) {
	for _, count := range []int{3, 1000} {
		all := &stores{redis: servers.StartRedis(t)}
		one, other := all.open(t, 0), all.open(t, 0)
		_, _, err := one.Change(t.Context(), user("alice"), "tester",
			func(r *Profile) { r.Tier, r.Control = "gold", true })
		if err != nil {
			t.Fatal(err)
		}
		var announced []string
		publish := one.cfg.Publish
		one.cfg.Publish = func(ctx context.Context, key, class string) error {
			all.mu.Lock()
			announced = append(announced, key+" "+class)
			all.mu.Unlock()
			return publish(ctx, key, class)
		}
		var wanted []Swap
		until := time.Now().Add(time.Hour).UTC()
		for n := range count {
			wanted = append(wanted,
				Swap{Identity: user(fmt.Sprint("user-", n)), Profile: &Profile{Tier: "silver", Control: true}})
		}
		acme := Identity{Domain: "shop", Kind: Tenant, Name: "acme"}
		wanted = append(wanted, Swap{Identity: user("alice")},
			Swap{Identity: acme, Profile: &Profile{Block: &Block{Until: until}}})
		expectTier(t, other, "user-1", "none")
		expectTier(t, other, "alice", "gold")
		for _, want := range []int{len(wanted), 0} {
			if got := mend(t, one, wanted); got != want {
				t.Fatalf("%d of %d profiles are written, want %d", got, len(wanted), want)
			}
		}
		expectTier(t, other, "user-1", "silver")
		expectTier(t, other, "alice", "none")
		if left := all.redis.Do(t, "PTTL", "rec:tenant:acme").(int64); left <= 0 {
			t.Errorf("the profile of a block that ends lives for %d ms", left)
		}
		servers.Await(t, "the kind of the block", func() error {
			if !other.Kinds("shop").Has(Tenant) {
				return errors.New("it is not known")
			}
			return nil
		})
		want := len(wanted)
		if want > announceEach {
			want = 2 // classes
		}
		if len(announced) != want {
			t.Errorf("after %d profiles %d news were announced, want %d", len(wanted), len(announced), want)
		}
	}
}
