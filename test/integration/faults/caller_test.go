package faults

import (
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// callerRows are the faults of those who call, and of the machine they share.
var callerRows = []row{
	{id: "X18", fault: "20 sidecars' stores recover together", full: 5 * time.Second, run: together},
	{id: "X19", fault: "half of the calls cancelled at 5 ms", short: 5 * time.Second, full: time.Minute,
		run: func(x *trial) {
			// Replies are within the budget, and many of them take longer than the callers that hang up wait.
			x.startBehindProxy()
			x.proxy.Set(servers.Fault{Mode: servers.Latency, Delay: 4 * time.Millisecond, Jitter: 2 * time.Millisecond})
			x.leaves = true
			pass(time.Second) // the pool grows to what that takes
			x.awaitHealth()
			accepted := x.proxy.Accepted()
			x.during(func() {
				x.load.cancelAfter.Store(int64(5 * time.Millisecond))
			}, func() { x.load.cancelAfter.Store(0) })
			accepted = x.proxy.Accepted() - accepted
			x.common()
			x.late(0.01)
			x.keepsClosed()
			x.note("%d cancelled, %d new connections", x.seen.cancelled, accepted)
			if x.seen.cancelled < x.seen.answers/10 {
				x.misses("only %d of %d calls were cancelled", x.seen.cancelled, x.seen.answers)
			}
			if most := int64(x.length / time.Second); accepted > most {
				x.misses("%d new connections, at most %d", accepted, most)
			}
		}},
	{id: "X20", fault: "two burners, GOGC=10 (reported, not gated)", full: time.Minute, run: func(x *trial) {
		x.startRedis()
		x.startSidecar("REDIS_URL="+x.redis.Addr, "GOGC=10")
		x.settle()
		var burners []*servers.Process
		x.during(func() {
			for range 2 {
				burners = append(burners, servers.Child(x, "sh", "-c", "while :; do :; done"))
			}
		}, func() {
			for _, b := range burners {
				b.End(x)
			}
		})
		x.common()
		x.late(0.01)
		x.note("the breaker opened %d times, at most 1 wanted", x.changes(`to="open"`))
		x.note("%s", strings.Join(append(x.wrong, x.missed...), "; "))
		x.wrong, x.missed = nil, nil
	}},
}
