package faults

import (
	"fmt"
	"os"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	poolSize    = 32                     // connections of a sidecar, as shipped
	dialTimeout = 500 * time.Millisecond // of a connection that does not greet back, as shipped
)

// networkRows are the faults between sidecar and server.
var networkRows = []row{
	{id: "X4", fault: "replies 4 ± 2 ms late, within the budget", short: 6 * time.Second, full: time.Minute, run: func(x *trial) {
		x.startBehindProxy()
		x.network(servers.Fault{Mode: servers.Latency, Delay: 4 * time.Millisecond, Jitter: 2 * time.Millisecond})
		x.common()
		x.keepsClosed()
		if part := x.degradedPart(); part > 0.005 {
			x.misses("%.2f %% of the answers were degraded, at most 0.5 %%", 100*part)
		}
	}},
	{id: "X5", fault: "10 % of replies held 200 ms or reset", short: 6 * time.Second, full: time.Minute, run: func(x *trial) {
		x.startBehindProxy()
		x.network(servers.Fault{Mode: servers.HoldOrReset, Share: 0.1, Delay: 200 * time.Millisecond})
		x.common()
		x.late(0.01)
		x.closes(3 * time.Second)
		x.note("%d state changes", x.changes())
		if most := int64(30 * x.length.Minutes()); x.changes() > most {
			x.misses("the breaker changed its state %d times, at most %d", x.changes(), most)
		}
	}},
	{id: "X6a", fault: "a black hole", short: 3 * time.Second, full: 10 * time.Second, run: stuck(servers.BlackHole)},
	{id: "X6b", fault: "half-closed connections", full: 10 * time.Second, run: stuck(servers.HalfClose)},
	{id: "X7", fault: "resets in replies, slices, single bytes", short: 6 * time.Second, full: 105 * time.Second, run: func(x *trial) {
		x.startBehindProxy()
		x.during(func() {
			x.proxy.Set(servers.Fault{Mode: servers.ResetReplies, Share: 0.02})
			pass(x.length / 3)
			x.proxy.Set(servers.Fault{Mode: servers.Slices, Delay: 200 * time.Microsecond})
			pass(x.length / 3)
			x.proxy.Set(servers.Fault{Mode: servers.OneByte})
		}, func() { x.proxy.Set(servers.Fault{}) })
		x.common()
		if full && x.seen.decided < 100_000*8/10 {
			x.fails("only %d tagged answers came from the store", x.seen.decided)
		}
	}},
}

// stuck is a network in which connections die without a word: those that did are bounded, and gone soon after.
func stuck(mode servers.Mode) func(x *trial) {
	return func(x *trial) {
		x.startBehindProxy()
		fds, goroutines := x.held()
		most := x.proxyWatch(func() { x.network(servers.Fault{Mode: mode}) })
		x.outage()
		x.note("at most %d dead at once, gone after %v, %d left", most, span(x.seen.gone), x.proxy.Dead())
		if most > poolSize {
			x.fails("%d connections were stuck at once, at most %d", most, poolSize)
		}
		if x.seen.gone > dialTimeout+time.Second {
			x.misses("the last dead connection went after %v, at most %v", x.seen.gone, dialTimeout+time.Second)
		}
		x.heldAgain(fds, goroutines)
	}
}

// proxyWatch looks at the dead connections while run lasts, and returns the most there were at once. When the last of them
// went after the repair stands in seen.gone.
func (x *trial) proxyWatch(run func()) int64 {
	done, watched := make(chan struct{}), make(chan int64)
	var last time.Time
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		var most int64
		for {
			select {
			case <-done:
				watched <- most
				return
			case <-tick.C:
			}
			if dead := x.proxy.Dead(); dead > 0 {
				most, last = max(most, dead), time.Now()
			}
		}
	}()
	run()
	close(done)
	most := <-watched
	if last.After(x.ended) {
		x.seen.gone = last.Sub(x.ended)
	}
	return most
}

// held is how many files and goroutines the sidecar has, without the connections that are in the pool: a pool may grow and
// shrink within its size.
func (x *trial) held() (fds, goroutines int64) {
	x.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", x.sidecar.Process.Process.Pid))
	if err != nil {
		x.Fatalf("list the files of the sidecar: %v", err)
	}
	m := x.scrape()
	return int64(len(entries)) - m.sum("spillway_redis_connections"), m.sum("go_goroutines")
}

// heldAgain checks that within five seconds the sidecar holds no more than it held before, give or take five.
func (x *trial) heldAgain(fds, goroutines int64) {
	x.Helper()
	var text string
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-tick.C {
		f, g := x.held()
		if f-fds <= 5 && g-goroutines <= 5 {
			return
		}
		text = fmt.Sprintf("%d files and %d goroutines, before the fault %d and %d", f, g, fds, goroutines)
	}
	x.misses("the sidecar holds %s", text)
}
