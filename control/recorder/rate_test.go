package recorder

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestCopyRate measures how fast events and usage are copied, with PostgreSQL, Redis and the recorder on this machine. CONTROL_TESTS=full makes it long enough to
// tell, and lets it fail below 20,000 events a second.
func TestCopyRate(t *testing.T) {
	entries, bar := int64(20), 0.0
	if os.Getenv("CONTROL_TESTS") == "full" && !raceEnabled {
		entries, bar = 1500, 20_000
	}
	const rows = 200 // of an entry, as sidecars write them
	w := newWorld(t)
	for n := range entries {
		w.send("events", eventsOf("one", n+1, time.Now(), rows))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	w.drain()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	w.want("events", entries*rows, `SELECT count(*) FROM events`)
	rate := float64(entries*rows) / took.Seconds()
	t.Logf("copied %d events in %v: %.0f a second; the heap has %d MiB", entries*rows, took.Round(time.Millisecond), rate, after.HeapAlloc>>20)
	if rate < bar {
		t.Errorf("%.0f events a second, want at least %.0f", rate, bar)
	}
	for n := range entries {
		w.send("usage", usageOf("one", n+1, fmt.Sprintf("user-%d", n%500), time.Now(), 1, 1))
	}
	began = time.Now()
	w.drain()
	took = time.Since(began)
	w.want("requests", 2*entries, `SELECT sum(requests)::bigint FROM usage_minutes`)
	t.Logf("copied %d entries of usage in %v: %.0f a second", entries, took.Round(time.Millisecond), float64(entries)/took.Seconds())
	if w.conn.Ping(context.Background()) != nil {
		t.Error("the connection is lost")
	}
}
