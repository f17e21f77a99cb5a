package database

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestReadinessCostsAStatementInASecond asks for the readiness from many callers at once, some of whom hang up.
func TestReadinessCostsAStatementInASecond(t *testing.T) {
	d := migrated(t)
	began, before := time.Now(), d.urgent.Stat().AcquireCount()
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if n%4 == 0 {
				cancel()
			}
			if err := d.Ready(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	used, most := d.urgent.Stat().AcquireCount()-before, 1+int64(time.Since(began)/time.Second)
	if used > most {
		t.Errorf("200 callers took %d connections, want at most %d", used, most)
	}
	if d.reads.Stat().AcquireCount() > 0 {
		t.Error("the readiness takes connections of requests")
	}
}
