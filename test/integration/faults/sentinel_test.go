package faults

import (
	"context"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// sentinelRows are the faults of a master that sentinels watch, and of the sentinels.
var sentinelRows = []row{
	{id: "X8", fault: "sentinel: kill -9 the master", full: 7 * time.Second, run: func(x *trial) {
		s := x.startSentinels()
		scarce := x.exhaust()
		old := s.Servers[0]
		x.during(func() { old.Kill(x) }, func() { old.Start(x); s.AwaitReplica(x, old) })
		x.replaced(scarce, 1, all)
		x.recovers(5 * time.Second)
		x.opens(opensWithin)
		x.late(0.01)
		x.patient(0.01)
	}},
	{id: "X9", fault: "SENTINEL FAILOVER of a living master", full: 10 * time.Second, run: deposed},
	{id: "X10", fault: "two sentinels gone, then all", full: 10 * time.Second, run: unwatched},
}

// startSentinels starts a master with its replicas and sentinels, and the sidecar under load.
func (x *trial) startSentinels() *servers.Sentinels {
	x.Helper()
	s := servers.StartSentinels(x)
	x.counters = func() map[int]int64 { return usedBy(x, x.straight(s.Current(x))) }
	x.startSidecar("REDIS_TYPE=sentinel", "REDIS_URL="+s.Master+","+strings.Join(s.Addrs(), ","))
	x.settle()
	return s
}

// deposed is a master that another one takes over from while it lives. It becomes a replica, and it is not asked any
// more.
func deposed(x *trial) {
	s := x.startSentinels()
	scarce := x.exhaust()
	old := s.Servers[0]
	var replica time.Time
	x.during(func() {
		s.Failover(x)
		s.AwaitFailover(x, old)
		s.AwaitReplica(x, old)
		replica = time.Now()
	}, func() {})
	x.replaced(scarce, 1, all)
	x.late(0.01)
	first, last := x.degradedSpan()
	x.note("degraded for %v", span(last.Sub(first)))
	if took := last.Sub(first); took > time.Second {
		x.misses("there were degraded answers for %v, at most 1s", took)
	}
	x.undisturbed("since the old master is a replica", func(a *answer) bool { return a.at.After(replica) })
}

// unwatched is a master that works while its sentinels go. New connections do not need them.
func unwatched(x *trial) {
	s := x.startSentinels()
	master := s.Servers[0]
	cut := 0
	x.during(func() {
		s.Watch[0].Kill(x)
		s.Watch[1].Kill(x)
		pass(x.length / 4)
		cut += x.cut(master)
		pass(x.length/2 - time.Since(x.began))
		s.Watch[2].Kill(x)
		pass(x.length / 4)
		cut += x.cut(master)
	}, func() {
		for _, w := range s.Watch {
			w.Start(x)
		}
	})
	x.common()
	x.late(0.01)
	x.keepsClosed()
	x.note("%d connections cut", cut)
	if cut < 8 {
		x.fails("only %d connections were cut", cut)
	}
	// It is unknown what became of a call on a connection that is cut, so it is not repeated.
	closed := 0
	x.undisturbed("while the master lived", func(a *answer) bool {
		if a.degraded == "closed" {
			closed++
		}
		return a.degraded != "closed"
	})
	if closed > cut {
		x.fails("%d answers lost their connection, %d were cut", closed, cut)
	}
}

// cut ends all connections of clients to a server, and returns how many there were.
func (x *trial) cut(r *servers.Redis) int {
	x.Helper()
	n, err := x.straight(r).Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Int()
	if err != nil {
		x.Fatalf("cut the connections to %s: %v", r.Addr, err)
	}
	return n
}
