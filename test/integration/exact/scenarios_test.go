//go:build full

package exact

import (
	"fmt"
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// cell is one row of a scenario.
type cell struct {
	n         int
	algorithm string
}

// scenario is what callers and servers do in a row.
type scenario struct {
	name string
	of   []string // algorithms, with 2, 4 and 8 sidecars
	each int      // of the limit, for each sidecar
	run  func(x *trial)
}

func (s scenario) cells() []cell {
	var all []cell
	for _, n := range []int{2, 4, 8} {
		for _, algorithm := range s.of {
			all = append(all, cell{n, algorithm})
		}
	}
	return all
}

// leased are the algorithms that sidecars may hold tokens of.
var leased = []string{tokenBucket, fixedWindow, slidingWindow}

// scenarios are all of them.
func scenarios() []scenario {
	return []scenario{
		{"twice the limit", algorithms, lean, overload},
		{"below the limit", leased, hot, below},
		{"bursts after silence", algorithms, lean, bursts},
		{"callers move", leased, hot, moving},
		{"costs from 1 to 5", algorithms, hot, costs},
		{"kill -9, a successor starts", leased, hot, killed},
		{"stopped for 1.5 s", leased, hot, stopped},
		{"Redis hangs 50 ms", leased, hot, hanging(50 * time.Millisecond)},
		{"Redis hangs 1.5 s", leased, hot, hanging(1500 * time.Millisecond)},
		{"clock of Redis 5 s ahead", leased, hot, redisOff(skew)},
		{"clock of Redis 5 s behind", leased, hot, redisOff(-skew)},
		{"clocks of sidecars 5 s ahead and behind", leased, hot, sidecarsOff},
		{"Redis killed, a replica takes over", leased, hot, failedOver},
		{"Redis wiped", leased, hot, wiped},
		{"limit lowered and raised", leased, hot, changing},
		{"replaced one by one", algorithms, hot, replaced},
		{"two limits in a request", leased, hot, together},
	}
}

// overload asks for twice the limit all the time.
func overload(x *trial) {
	x.begin()
	x.steady = true
	x.under(x.twice(), func() { pass(12 * time.Second) })
}

// waves asks for less than the limit, then for more, in turns.
func (x *trial) waves(n int) {
	x.under(x.rate()*3/4, func() {
		for range n {
			x.calm()
			pass(1200 * time.Millisecond)
			x.press()
			pass(time.Second)
		}
	})
}

// below asks for less than the limit, then for more.
func below(x *trial) {
	x.begin()
	x.holds = true
	x.waves(3)
}

// bursts lets counters fill up, then asks as fast as callers can.
func bursts(x *trial) {
	x.begin()
	for range 5 {
		x.under(0, func() { pass(300 * time.Millisecond) })
		pass(1100 * time.Millisecond)
	}
	x.under(0, func() { pass(300 * time.Millisecond) })
}

// moving lets the callers of one sidecar make its key hot, then those of the next ask for twice the limit: what the one
// before holds must not be missing for long.
func moving(x *trial) {
	x.begin()
	for i := range 12 {
		x.active(i)
		x.under(x.rate()*int64(x.n)*3/4, func() { pass(250 * time.Millisecond) })
		x.active(i + 1)
		x.under(x.rate()*int64(x.n)*3/2, func() { pass(450 * time.Millisecond) })
	}
}

// active lets the callers of one sidecar ask, and those of the others wait.
func (x *trial) active(i int) {
	for k, s := range x.seats {
		s.active.Store(k == i%len(x.seats))
	}
}

// costs asks for more than one token at a time.
func costs(x *trial) {
	x.begin()
	x.next = func(n int64) request { return request{user: "hot", cost: 1 + n*7%5} }
	// Three tokens at a time on average.
	x.under(x.rate()/4, func() { pass(3 * time.Second) })
	x.under(x.rate()/2, func() { pass(5 * time.Second) })
}

// killed ends a sidecar under load, and another one takes its place.
func killed(x *trial) {
	x.mayFail = true
	x.begin()
	x.under(x.rate(), func() {
		for i := range 3 {
			x.calm()
			pass(700 * time.Millisecond)
			x.replace(i % x.n)
			x.press()
			pass(700 * time.Millisecond)
		}
	})
}

// replace kills a sidecar and starts its successor.
func (x *trial) replace(i int) {
	x.Helper()
	old := x.sidecars[i]
	x.gone += x.local(old)
	old.End(x)
	x.sidecars[i] = x.start()
	before := *x.seats[i].current.Load()
	x.seats[i].sit(dial(x, x.sidecars[i].GRPC))
	before.(*client).conn.Close() // so that callers who wait for it ask the successor
}

// replaced starts a successor for each sidecar in turn under load, as a rollout does.
func replaced(x *trial) {
	x.begin()
	x.under(x.rate(), func() {
		for i := range x.n {
			x.calm()
			pass(600 * time.Millisecond)
			x.rollOver(i)
			x.press()
			pass(600 * time.Millisecond)
		}
	})
}

// rollOver starts the successor of a sidecar, moves its callers over, and ends it as an orchestrator does.
func (x *trial) rollOver(i int) {
	x.Helper()
	old := x.sidecars[i]
	x.sidecars[i] = x.start()
	x.seats[i].sit(dial(x, x.sidecars[i].GRPC))
	x.gone += x.local(old)
	old.Send(x, syscall.SIGTERM)
	if code := old.Exit(x); code != 0 {
		x.fails("a sidecar that was asked to end ended with %d", code)
	}
}

// stopped stops a sidecar for longer than it may hold tokens, while the others leave enough for the counter to fill up.
// When Redis runs again, all ask at once: tokens that it held would come on top of a full counter.
func stopped(x *trial) {
	x.begin()
	x.under(x.rate(), func() {
		for i := range 4 {
			x.calm()
			pass(500 * time.Millisecond)
			s := x.sidecars[i%x.n]
			s.Hang(x)
			x.pace(x.rate() / 4)
			pass(1500 * time.Millisecond)
			s.Send(x, syscall.SIGCONT)
			x.rush()
			pass(400 * time.Millisecond)
		}
	})
}

// hanging stops Redis for a while. When it runs again, all ask at once.
func hanging(length time.Duration) func(x *trial) {
	return func(x *trial) {
		x.begin()
		x.under(x.rate(), func() {
			for range 6 {
				x.calm()
				pass(500 * time.Millisecond)
				x.redis.Hang(x)
				pass(length)
				err := x.redis.Signal(syscall.SIGCONT)
				if err != nil {
					x.Fatalf("wake Redis: %v", err)
				}
				x.rush()
				pass(300 * time.Millisecond)
			}
			x.awaitAdmission()
			pass(300 * time.Millisecond)
		})
	}
}

// awaitAdmission waits until every sidecar is admitted something by Redis again.
func (x *trial) awaitAdmission() {
	x.Helper()
	for i, s := range x.seats {
		servers.Await(x, fmt.Sprintf("an answer of Redis through sidecar %d", i+1), func() error {
			got := (*s.current.Load()).ask(request{user: "probe", cost: 1})
			if got.outcome == undecided {
				return fmt.Errorf("the answer is without Redis: %s", got.failure)
			}
			return nil
		})
	}
}
