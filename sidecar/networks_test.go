package sidecar

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// openStore opens the profiles in a Redis, or without one those of a sidecar alone, as a sidecar does.
func openStore(t *testing.T, server *servers.Redis, bytes int64) *profiles.Store {
	t.Helper()
	cfg := profiles.Config{Prepare: prepareProfile, Patience: time.Minute, Bytes: bytes}
	if server != nil {
		cfg.Redis = redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}},
			Silence: time.Minute})
		t.Cleanup(cfg.Redis.Close)
		keys := keys.NewNames("", nil)
		cfg.Index, cfg.Publish = keys.Shared("index"), func(context.Context, string, string) error { return nil }
		cfg.Key = func(id *profiles.Identity) string { return keys.Profile(id.Domain, id.Kind.String(), id.Text()) }
	}
	store := profiles.New(cfg)
	t.Cleanup(func() { store.Close() })
	store.Ready(t.Context())
	return store
}

// change changes the profile of a network.
func change(t *testing.T, store *profiles.Store, network string, edit func(*profiles.Profile)) {
	t.Helper()
	id := profiles.Identity{Domain: "shop", Kind: profiles.Network, Network: netip.MustParsePrefix(network)}
	_, _, err := store.Change(t.Context(), id, "tester", edit)
	if err != nil {
		t.Fatal(err)
	}
}

// matched is what rules and profiles do with a request from an address.
func matched(t *testing.T, set *descriptors.Set, store *profiles.Store, address string) (m descriptors.Match) {
	t.Helper()
	req := &descriptors.Request{Domain: "shop",
		Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "remote_address", Value: address}}}}}
	var who descriptors.Who
	var found descriptors.Profiles
	set.Who(req, &m, &who)
	if store.Look(t.Context(), "shop", &who, &found) {
		req.Profiles = &found
	}
	set.Match(req, &m)
	return m
}

// shop compiles the rules of the domain shop.
func shop(t *testing.T, rules ...descriptors.Rule) *descriptors.Set {
	t.Helper()
	set, problems := descriptors.Compile([]descriptors.Domain{{Name: "shop", Rules: rules}}, descriptors.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set
}

func TestABlockThatIsOverDoesNotHideThatOfTheNetwork(t *testing.T) {
	store := openStore(t, nil, 0)
	change(t, store, "192.0.2.0/24", func(r *profiles.Profile) { r.Block = &profiles.Block{} })
	change(t, store, "192.0.2.7/32", func(r *profiles.Profile) {
		r.Block = &profiles.Block{Until: time.Now().Add(-time.Second)}
	})
	for _, address := range []string{"192.0.2.8", "192.0.2.7"} {
		if m := matched(t, shop(t), store, address); m.Block == nil {
			t.Errorf("%s passes, and 192.0.2.0/24 is blocked for ever", address)
		}
	}
}

// The rules block a network. One profile lifts that for an address in it, another one is about the network.
func TestTheProfileOfTheSmallestNetworkCounts(t *testing.T) {
	redis := servers.StartRedis(t)
	operator := openStore(t, redis, 0)
	change(t, operator, "10.1.2.3/32", func(r *profiles.Profile) { r.Block = &profiles.Block{Lifted: true} })
	change(t, operator, "10.0.0.0/8", func(r *profiles.Profile) { r.Note = "the old office" })
	set := shop(t, descriptors.Rule{Name: "office", Action: descriptors.Block,
		Match: descriptors.Conditions{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}})
	store := openStore(t, redis, 0)
	for _, how := range []string{"asked for", "cached"} {
		if m := matched(t, set, store, "10.1.2.3"); m.Block != nil {
			t.Errorf("%s: 10.1.2.3 is blocked, and its profile lifts that", how)
		}
		if m := matched(t, set, store, "10.1.2.4"); m.Block == nil {
			t.Errorf("%s: 10.1.2.4 passes, and only the profile of 10.1.2.3 lifts the block", how)
		}
	}
}

// The texts of a request are parts of its message.
func TestACachedProfileDoesNotKeepTheMessage(t *testing.T) {
	const users, longest = 300, 60 << 10
	store := openStore(t, servers.StartRedis(t), 1<<20)
	name := func(n int) string { return fmt.Sprintf("user-%04d", n) }
	for n := range users {
		_, _, err := store.Change(t.Context(), profiles.Identity{Domain: "shop", Kind: profiles.User, Name: name(n)},
			"tester", func(r *profiles.Profile) {
				r.Tier = "pro"
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for n := range users {
		message := name(n) + strings.Repeat("x", longest)
		who := descriptors.Who{User: message[:len(name(n))]}
		var found descriptors.Profiles
		if !store.Look(t.Context(), "shop", &who, &found) || found.User.Tier != "pro" {
			t.Fatalf("%s has no profile", who.User)
		}
	}
	if grown := heap() - before; grown > users*longest/4 {
		t.Errorf("%d cached profiles take %d KiB, as if they kept the messages of their requests; the cache counts "+
			"%d KiB", users, grown>>10, store.Stats().Bytes>>10)
	}
}

// TestAProfileHasAtMostSixteenLimits prepares a profile that something else than the API has written: the first limits
// hold.
func TestAProfileHasAtMostSixteenLimits(t *testing.T) {
	var written profiles.Profile
	for n := range 500 {
		one := profiles.Limit{Name: fmt.Sprint("limit ", n), Count: 5, Per: time.Minute, Algorithm: "fixed_window"}
		written.Limits = append(written.Limits, one)
	}
	ann := profiles.Identity{Domain: "shop", Kind: profiles.User, Name: "ann"}
	prepared, _ := prepareProfile(&ann, &written).(*descriptors.Profile)
	if prepared == nil || len(prepared.Limits) != 16 || prepared.Limits[15].Name != "limit 15" {
		t.Errorf("the profile is prepared as %v", prepared)
	}
}
