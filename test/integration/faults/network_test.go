package faults

import (
	"fmt"
	"os"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	// connections of a sidecar, as shipped: for batches, for cold commands, one subscription
	poolSize    = 8 + 8 + 1
	dialTimeout = 500 * time.Millisecond // of a connection that does not greet back, as shipped
)

// networkRows are the faults between sidecar and server.
var networkRows = []row{
	{id: "X4", fault: "replies 4 ± 2 ms late, within the budget", full: time.Minute, run: func(x *trial) {
		x.startBehindProxy()
		x.during(x.network(servers.Fault{Mode: servers.Latency, Delay: 4 * time.Millisecond,
			Jitter: 2 * time.Millisecond}))
		x.common()
		x.late(0.01)
		x.keepsClosed()
		if part := x.degradedPart(); part > 0.005 {
			x.misses("%.2f %% of the answers were degraded, at most 0.5 %%", 100*part)
		}
	}},
	// Its bounds are about a minute; six seconds of chance show little, so it is not in make test.
	{id: "X5", fault: "10 % of replies held 200 ms or reset", full: time.Minute, run: func(x *trial) {
		x.startBehindProxy()
		begin, repair := x.network(servers.Fault{Mode: servers.HoldOrReset, Share: 0.1, Delay: 200 * time.Millisecond})
		x.heals = 3 * time.Second
		x.during(begin, func() { repair(); pass(200 * time.Millisecond) }) // it ends with the last reply that is held
		x.common()
		x.patient(0.01)
		x.healed()
		x.note("%d state changes", x.changes())
	}},
	{id: "X6a", fault: "a black hole", short: 3 * time.Second, full: 10 * time.Second, run: stuck(servers.BlackHole)},
	{id: "X6b", fault: "half-closed connections", full: 10 * time.Second, run: stuck(servers.HalfClose)},
	{id: "X7", fault: "resets in replies, slices, single bytes", full: 2 * time.Minute,
		run: func(x *trial) {
			x.startBehindProxy()
			x.during(func() {
				x.proxy.Set(servers.Fault{Mode: servers.ResetReplies, Share: 0.02})
				pass(x.length / 3)
				x.proxy.Set(servers.Fault{Mode: servers.Slices, Delay: 200 * time.Microsecond})
				pass(x.length / 3)
				x.proxy.Set(servers.Fault{Mode: servers.OneByte})
			}, func() { x.proxy.Set(servers.Fault{}) })
			x.common()
			x.patient(0.01)
			if full && x.seen.decided < 100_000 {
				x.misses("only %d tagged answers came from the store, want 100,000", x.seen.decided)
			}
		}},
}

// stuck is a network in which connections die without a word: those that did are bounded, and gone soon after.
func stuck(mode servers.Mode) func(x *trial) {
	return func(x *trial) {
		x.startBehindProxy()
		fds, goroutines := x.held()
		x.outage(x.network(servers.Fault{Mode: mode}))
		dead := x.proxy.Deaths()
		x.note("%d dead, at most %d at once and for %v", dead.Total, dead.AtOnce, span(dead.Longest))
		if dead.Total == 0 {
			x.fails("no connection died")
		}
		if dead.AtOnce > poolSize {
			x.fails("%d connections were stuck at once, at most %d", dead.AtOnce, poolSize)
		}
		if dead.Longest > dialTimeout+time.Second {
			x.misses("a dead connection was kept for %v, at most %v", dead.Longest, dialTimeout+time.Second)
		}
		x.heldAgain(fds, goroutines)
	}
}

// held is how many files and goroutines the sidecar has, without the connections that are in the pool: a pool may grow
// and shrink within its size.
func (x *trial) held() (fds, goroutines int64) {
	x.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", x.sidecar.Process.Process.Pid))
	if err != nil {
		x.Fatalf("list the files of the sidecar: %v", err)
	}
	m := x.scrape()
	return int64(len(entries)) - m.sum("spillway_redis_connections"), m.sum("go_goroutines")
}

// heldAgain checks that within 30 seconds the sidecar holds no more than it held before, give or take five.
func (x *trial) heldAgain(fds, goroutines int64) {
	x.Helper()
	var text string
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		f, g := x.held()
		if f-fds <= 5 && g-goroutines <= 5 {
			return
		}
		text = fmt.Sprintf("%d files and %d goroutines, before the fault %d and %d", f, g, fds, goroutines)
	}
	x.fails("the sidecar holds %s", text)
}
