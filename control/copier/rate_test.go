package copier

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// spent is the time of processors that processes have used.
func spent(t *testing.T, processes []int) (all []time.Duration) {
	t.Helper()
	for _, pid := range processes {
		text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		all = append(all, time.Duration(user+system)*10*time.Millisecond)
	}
	return all
}

// TestCopyRate measures how fast events and usage are copied, with PostgreSQL, Redis and the copier on this machine.
// make test-all makes it long enough to judge, and lets it fail where all three together copy less than 20,000 events
// in a second of one processor: how long that takes on the wall depends on what else runs.
func TestCopyRate(t *testing.T) {
	entries, bar := int64(20), 0.0
	if servers.Full && !servers.Race {
		entries, bar = 1500, 20_000
	}
	const rows = 200 // of an entry, as sidecars write them
	w := newWorld(t)
	for n := range entries {
		w.send("events", eventsOf("one", n+1, time.Now(), rows))
	}
	backend := int(w.conn.PgConn().PID())
	processes := []int{os.Getpid(), backend, w.redis.Pid()}
	before := spent(t, processes)
	began := time.Now()
	w.drain()
	took := time.Since(began)
	after := spent(t, processes)
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	w.want("events", entries*rows, `SELECT count(*) FROM events`)
	rate := float64(entries*rows) / took.Seconds()
	t.Logf("copied %d events in %v: %.0f a second; time of processors: copier %v, PostgreSQL %v, Redis %v; the heap "+
		"has %d MiB", entries*rows, took.Round(time.Millisecond), rate,
		after[0]-before[0], after[1]-before[1], after[2]-before[2], heap.HeapAlloc>>20)
	if busy := after[0] - before[0] + after[1] - before[1] +
		after[2] - before[2]; float64(entries*rows)/busy.Seconds() < bar {
		t.Errorf("the copy took %v of processors, want at least %.0f events in a second of one", busy, bar)
	}
	for n := range entries {
		w.send("usage", usageOf("one", n+1, fmt.Sprintf("user-%d", n%500), time.Now(), 1, 1))
	}
	began = time.Now()
	w.drain()
	took = time.Since(began)
	w.want("requests", 2*entries, `SELECT sum(requests)::bigint FROM usage_minutes`)
	t.Logf("copied %d entries of usage in %v: %.0f a second", entries, took.Round(time.Millisecond),
		float64(entries)/took.Seconds())
	if w.conn.Ping(context.Background()) != nil {
		t.Error("the connection is lost")
	}
}
