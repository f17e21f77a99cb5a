package profiles

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAnAnswerFromBeforeAChangeIsNotKept lets an answer be kept while its profile is forgotten: whichever comes first,
// nothing is up to date afterwards.
func TestAnAnswerFromBeforeAChangeIsNotKept(t *testing.T) {
	const key = "k"
	c, id := newCache(1<<20), Identity{Domain: "shop", Kind: User, Name: "ann"}
	e := &entry{key: key, until: time.Now().Add(time.Hour), bytes: entryBytes}
	for n := range 100_000 {
		asked := c.changes.Load()
		var begun atomic.Bool
		var both sync.WaitGroup
		both.Go(func() {
			begun.Store(true)
			c.keep(id, e, asked)
		})
		for !begun.Load() {
			runtime.Gosched()
		}
		for range n % 256 { // so that all of keep is met
			c.changes.Load()
		}
		c.forget(key)
		both.Wait()
		if _, fresh := c.find(&id, time.Now()); fresh {
			t.Fatal("what was asked for before the change is up to date")
		}
	}
}

// Redis is away, so a profile that is forgotten cannot be had again.
func TestAFloodDoesNotForgetProfilesWhileRedisIsAway(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	b := all.open(t, 1<<20)
	give(t, b, "mallory", "blocked")
	expectTier(t, b, "mallory", "blocked")
	all.redis.Kill(t)
	b.Outdate() // as a subscription does that breaks
	for n := range 200 {
		var ids []Identity
		for i := range 100 {
			ids = append(ids, user(fmt.Sprintf("made-up-%d-%d", n, i)))
		}
		b.Ask(t.Context(), ids)
		expectTier(t, b, "mallory", "blocked")
		if t.Failed() {
			t.Fatalf("forgotten after %d made-up identities: %+v", (n+1)*100, b.Stats())
		}
	}
	if b.Stats().Drops == 0 {
		t.Error("the flood dropped nothing, so it shows nothing")
	}
}

// A caller without time left asks for nothing, so it learns nothing that others could go by.
func TestACallerWithoutTimeDoesNotSpeakForOthers(t *testing.T) {
	all := &stores{redis: servers.StartRedis(t)}
	one, b := all.open(t, 0), all.open(t, 0)
	give(t, one, "mallory", "blocked")
	hurry, cancel := context.WithTimeout(t.Context(), leastAllow/2)
	defer cancel()
	b.Ask(hurry, []Identity{user("mallory")})
	expectTier(t, b, "mallory", "blocked")
}
