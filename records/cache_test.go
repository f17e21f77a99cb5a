package records

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAnAnswerFromBeforeAChangeIsNotKept lets an answer be kept while its record is forgotten: whichever comes first, nothing is known afterwards.
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
		if known, _ := c.find(&id, time.Now()); known != nil {
			t.Fatal("what was asked for before the change is kept")
		}
	}
}
