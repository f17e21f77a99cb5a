//go:build full

package load

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// A sidecar that gets no processor for 100 ms does not take its own stall for one of Redis. Requests whose patience
// ends meanwhile go by their policies, and no more than those are admitted beyond the limit.
func TestAStoppedSidecarDoesNotGiveUpOnRedis(t *testing.T) { row(stopSidecars).judge(t) }

func stopSidecars(t testing.TB, redis *servers.Redis) {
	const stopped, calm = 100 * time.Millisecond, 16 // callers: so few that the stop is what delays them
	f := begin(t, redis, perUser(perKey, "token_bucket"))
	callers := f.callers(t, calm)
	var asked atomic.Int64
	var done atomic.Bool
	pick := manyUsers()
	result := make(chan *tally)
	go func() {
		result <- press(callers, func() (string, bool) {
			asked.Add(1)
			return pick(), !done.Load()
		})
	}()
	for n := range 50 {
		awaitMore(t, &asked, 500)
		s := f[n%len(f)]
		s.Hang(t)
		<-time.After(stopped)
		s.Send(t, syscall.SIGCONT)
	}
	awaitMore(t, &asked, 500)
	done.Store(true)
	got := <-result
	f.keepsClosed(t)
	if len(got.failed) > 0 {
		t.Errorf("calls failed: %v", got.failed)
	}
	over := 0
	for user := range got.asked {
		over += max(0, got.admitted[user]-perKey)
	}
	if without := sum(got.degraded); over > without {
		servers.Wrong(t, "%d too many were admitted, and %d were decided without Redis", over, without)
	}
}

// keepsClosed fails if a breaker opened.
func (f sidecars) keepsClosed(t testing.TB) {
	t.Helper()
	for i, s := range f {
		m, err := servers.Scrape(s.Debug)
		if err != nil {
			t.Fatalf("read the metrics of sidecar %d: %v", i+1, err)
		}
		if n := m.Sum("spillway_breaker_transitions_total", `to="open"`); n > 0 {
			t.Errorf("the breaker of sidecar %d opened %d times", i+1, n)
		}
	}
}

// awaitMore waits until a count has grown by so much.
func awaitMore(t testing.TB, count *atomic.Int64, by int64) {
	t.Helper()
	want := count.Load() + by
	servers.Await(t, fmt.Sprintf("%d more calls", by), func() error {
		if n := count.Load(); n < want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}
