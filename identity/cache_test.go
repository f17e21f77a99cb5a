package identity

import (
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"
)

func keyOf(n uint64) *cacheKey {
	var key cacheKey
	key.token[0] = byte(n)
	binary.BigEndian.PutUint64(key.token[8:], n)
	return &key
}

func TestAFullCacheForgetsWhatNobodyAsksFor(t *testing.T) {
	c := newCache(160)
	for n := range uint64(160) {
		c.put(keyOf(n), grant{user: "early", expires: 10}, 1)
	}
	for n := uint64(160); n < 100_000; n++ {
		_, ok := c.get(keyOf(7), 1)
		if !ok {
			t.Fatalf("a token that is always asked for was forgotten after %d others", n)
		}
		c.put(keyOf(n), grant{user: "later", expires: 10}, 1)
	}
	if _, ok := c.get(keyOf(8), 1); ok {
		t.Error("a token that was not asked for is still there")
	}
	if got := c.len(); got != 160 {
		t.Errorf("%d tokens are remembered, want 160", got)
	}
	if got := c.evicted.Load(); got != 100_000-160 {
		t.Errorf("%d forgotten early, want all but those that are there", got)
	}
}

func TestExpiredTokensAreReplacedUncounted(t *testing.T) {
	c := newCache(16)
	for n := range uint64(64) {
		c.put(keyOf(n), grant{expires: 10}, int64(n/16)*10)
	}
	if got := c.evicted.Load(); got != 0 {
		t.Errorf("%d forgotten early, want none: they had expired", got)
	}
	if _, ok := c.get(keyOf(63), 10); ok {
		t.Error("an expired token is remembered")
	}
}

func TestAPutAgainReplaces(t *testing.T) {
	c := newCache(16)
	c.put(keyOf(1), grant{user: "a", expires: 10}, 1)
	c.put(keyOf(1), grant{user: "b", expires: 20}, 1)
	got, ok := c.get(keyOf(1), 15)
	if !ok || got.user != "b" || c.len() != 1 || c.evicted.Load() != 0 {
		t.Errorf("%q, %v, %d remembered, %d evicted: want b alone", got.user, ok, c.len(), c.evicted.Load())
	}
}

func TestOtherConfigurationsHaveOtherGrants(t *testing.T) {
	c := newCache(16)
	mine, other := *keyOf(1), *keyOf(1)
	other.config = 2
	c.put(&mine, grant{user: "a", expires: 10}, 1)
	if _, ok := c.get(&other, 1); ok {
		t.Error("a token is remembered under a configuration that did not verify it")
	}
}

func TestManyUseACacheAtOnce(t *testing.T) {
	c := newCache(64)
	var all sync.WaitGroup
	for worker := range uint64(4) {
		all.Go(func() {
			for n := range uint64(5000) {
				key := keyOf((n * (worker + 1)) % 200)
				c.put(key, grant{user: "x", expires: 10}, 1)
				if got, ok := c.get(key, 1); ok && got.user != "x" {
					t.Errorf("grant of %q", got.user)
				}
			}
		})
	}
	all.Wait()
	if got := c.len(); got > 64 {
		t.Errorf("%d tokens are remembered, want 64 at most", got)
	}
}

func TestAPanicInAKeySetIsAFailure(t *testing.T) {
	sets := NewKeySets(KeySetsConfig{})
	defer sets.Close()
	set := newKeySet("https://issuer.example", sets)
	sets.fetcher = nil
	wait := set.refresh(sets.ctx)
	if sets.Stats().Failures != 1 || wait < 30*time.Second {
		t.Errorf("%d failures, again after %s: want a failure and a pause", sets.Stats().Failures, wait)
	}
}

// TestAFloodOfOneDomainsTokensLeavesThoseOfAnother: the configuration that holds most makes room.
func TestAFloodOfOneDomainsTokensLeavesThoseOfAnother(t *testing.T) {
	c := newCache(160)
	of := func(n, config uint64) *cacheKey {
		key := *keyOf(n)
		key.config = config
		return &key
	}
	for n := range uint64(32) {
		c.put(of(n, 1), grant{user: "quiet", expires: 10}, 1)
	}
	for n := range uint64(100_000) {
		c.put(of(n, 2), grant{user: "flood", expires: 10}, 1)
	}
	for n := range uint64(32) {
		if _, ok := c.get(of(n, 1), 1); !ok {
			t.Fatalf("token %d was forgotten for a flood of another domain's", n)
		}
	}
	if got := c.len(); got != 160 {
		t.Errorf("%d tokens are remembered, want 160", got)
	}
}

func TestTokensWithLongNamesAreNotRemembered(t *testing.T) {
	c := newCache(16)
	c.put(keyOf(1), grant{user: strings.Repeat("x", maxGrant), expires: 10}, 1)
	c.put(keyOf(2), grant{user: strings.Repeat("x", maxGrant), tier: "y", expires: 10}, 1)
	_, short := c.get(keyOf(1), 1)
	_, long := c.get(keyOf(2), 1)
	if !short || long || c.evicted.Load() != 1 {
		t.Errorf("remembered: %v up to the bound, %v above it, %d counted as forgotten", short, long, c.evicted.Load())
	}
}
