//go:build full

package exact

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// Scenarios in which the limiter itself changes: its state is lost, its limit is another one, or there are two.

// since and until are the ends of time.
const since, until = 0, math.MaxInt64

// lost allows one limit more from an instant on for what Redis forgets, which is what the page about failures promises,
// and holds everything before it, and after another instant, strictly.
func (x *trial) lost(from, to int64) {
	x.varies, x.limits = true, nil
	x.hold(" over the loss", x.plus(x.capacity()), x.whole)
	x.hold(" before the loss", x.bound, func() history { return x.seen.between(since, from) })
	x.hold(" after the loss", x.bound, func() history { return x.seen.between(to, until) })
	x.note("%d more are allowed over the loss, %d were admitted beyond the limit", x.capacity(),
		max(0, x.check(x.seen.spans()).over()))
}

// failedOver kills the master that sentinels watch. A replica that may not know its last writes takes over.
func failedOver(x *trial) {
	s := servers.StartSentinels(x)
	x.env = []string{"REDIS_TYPE=sentinel", "REDIS_URL=" + s.Master + "," + strings.Join(s.Addrs(), ",")}
	x.launch()
	old := s.Servers[0]
	var from, to int64
	x.under(x.rate()*3/4, func() {
		pass(700 * time.Millisecond)
		from = x.now()
		old.Kill(x)
		x.press()
		s.AwaitFailover(x, old)
		to = x.now()
		x.awaitAdmission()
		pass(1200 * time.Millisecond)
	})
	x.lost(from, to)
}

// wiped forgets all counters under load. What sidecars hold then ends within a second.
func wiped(x *trial) {
	x.begin()
	var at int64
	x.under(x.rate()*3/4, func() {
		pass(700 * time.Millisecond)
		at = x.now()
		x.redis.Do(x, "FLUSHALL")
		x.press()
		pass(2 * time.Second)
	})
	x.lost(at, at+1_000_000)
}

// changing lowers the limit to a quarter and raises it again. In between each version's own bound holds, and over a
// change the sum of both.
func changing(x *trial) {
	x.begin()
	low := x.bound
	low.count, low.burst = x.count/4, x.burst/4
	x.varies, x.limits = true, nil
	x.hold(" over all versions", x.plus(low.capacity()), x.whole)
	x.under(x.rate(), func() {
		x.version("first", x.bound, since)
		x.version("lowered", low, x.reload(low))
		x.version("raised", x.bound, x.reload(x.bound))
	})
	x.note("%d beyond the higher limit alone", max(0, x.check(x.seen.spans()).over()))
}

// version lets a version work, from an instant on, and holds what was surely decided by it to its bound.
func (x *trial) version(name string, b bound, from int64) {
	x.pace(b.twice())
	pass(700 * time.Millisecond)
	x.pace(b.rate() * 3 / 4)
	pass(700 * time.Millisecond)
	to := x.now()
	x.press() // while the next version is loaded
	part := func() history { return x.seen.between(from, to) }
	x.hold(" while the "+name+" limit held", b, part)
	x.checks = append(x.checks, func() {
		other := part().of(func(e *event) bool { return e.limit != b.count })
		if len(other) > 0 {
			x.fails("%d answers while the %s limit of %d held name another one, the first %d", len(other), name,
				b.count, other[0].limit)
		}
	})
}

// reload writes other rules, and returns an instant at which all sidecars use them.
func (x *trial) reload(b bound) int64 {
	x.Helper()
	x.write(b.rules())
	for i, s := range x.seats {
		servers.Await(x, fmt.Sprintf("sidecar %d to load the rules", i+1), func() error {
			got := (*s.current.Load()).ask(request{user: "probe", cost: 1})
			if got.limit != b.count {
				return fmt.Errorf("it answers with a limit of %d", got.limit)
			}
			return nil
		})
	}
	return x.now()
}

const users = 2 // of the scenario with two limits

// together asks for two limits at once, of a user and of a tenant. Each holds, for any answer of the other.
func together(x *trial) {
	mine := x.bound
	mine.count, mine.burst = x.count*2/5, x.burst*2/5
	x.twoLimits(mine)
	x.begin()
	x.varies, x.limits = true, nil
	x.next = func(n int64) request { return request{user: fmt.Sprint("u", n%users), tenant: "acme", cost: 1} }
	x.hold(" of the tenant", x.bound, x.whole)
	for k := range users {
		name := fmt.Sprint("u", k)
		x.hold(" of user "+name, mine, func() history {
			return x.seen.of(func(e *event) bool { return e.request.user == name })
		})
	}
	x.waves(3)
}

// twoLimits makes the rules of the row one for each user and one for the tenant.
func (x *trial) twoLimits(mine bound) {
	x.text = fmt.Sprintf("domain: %s\non_failure: closed\nrules:\n  - { name: each, scope: user, limit: %s }\n"+
		"  - { name: all, scope: tenant, limit: %s }\n",
		domain, mine.limit(), x.limit())
}
