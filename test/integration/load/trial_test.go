package load

import (
	"fmt"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// row is a test on a Redis of its own.
type row func(t testing.TB, redis *servers.Redis)

const trials = 5

// judge runs the row, and watches its Redis.
func (r row) judge(t *testing.T) {
	judge(t, func(t testing.TB, m *machine) {
		redis := servers.StartRedis(t)
		m.pid.Store(int64(redis.Pid()))
		r(t, redis)
	})
}

// judge runs trials until one says something. Where Redis or its callers wait too long for a processor because of this machine's other work, or
// stand still because of the machine's host, no answer can come in time. So a trial that missed something then says nothing, and there is
// another one. What the last trial missed counts in any case.
func judge(t *testing.T, run func(t testing.TB, m *machine)) {
	t.Helper()
	for n := 1; ; n++ {
		var missed []string
		var stalls lapses
		t.Run(fmt.Sprintf("trial %d", n), func(t *testing.T) {
			try, watch := &trial{TB: t}, watchMachine()
			defer func() {
				missed, stalls = try.missed, watch.end()
				t.Logf("%v; missed: %v", stalls, missed)
			}()
			run(try, watch)
		})
		if t.Failed() || len(missed) == 0 {
			return
		}
		if !stalls.excuse() || n == trials {
			t.Fatalf("in trial %d, %v: %v", n, stalls, missed)
		}
		awaitCalm()
	}
}

// trial is one run of a row. What it misses is kept until it is known whether Redis had a processor.
type trial struct {
	testing.TB
	missed []string
}

// Errorf keeps a miss.
func (t *trial) Errorf(format string, args ...any) {
	t.missed = append(t.missed, fmt.Sprintf(format, args...))
}
