package faults

import (
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// serverRows are the faults of the server as a whole.
var serverRows = []row{
	{id: "X1", fault: "kill -9, then a restart", short: 3 * time.Second, full: 10 * time.Second, run: func(x *trial) {
		x.start()
		x.outage(func() { x.redis.Kill(x) }, func() { x.redis.Start(x) })
	}},
	{id: "X2", fault: "SIGSTOP", short: 3 * time.Second, full: 10 * time.Second, run: func(x *trial) {
		x.start()
		x.outage(func() { x.redis.Hang(x) }, x.wake)
	}},
	{id: "X3a", fault: "replies 1 s late", full: 10 * time.Second, run: late(time.Second)},
	{id: "X3b", fault: "replies 5 s late", full: 10 * time.Second, run: late(5 * time.Second)},
	{id: "X3c", fault: "writes are paused, pings are not", full: 5 * time.Second, run: func(x *trial) {
		x.start()
		x.outage(func() { x.do("CLIENT", "PAUSE", "60000", "WRITE") }, func() { x.do("CLIENT", "UNPAUSE") })
	}},
}

// late is a network on which every reply comes so much later.
func late(delay time.Duration) func(x *trial) {
	return func(x *trial) {
		x.startBehindProxy()
		x.outage(x.network(servers.Fault{Mode: servers.Latency, Delay: delay}))
	}
}

// network is a fault of the proxy.
func (x *trial) network(f servers.Fault) (begin, repair func()) {
	return func() { x.proxy.Set(f) }, func() { x.proxy.Set(servers.Fault{}) }
}

func (x *trial) wake() {
	x.Helper()
	err := x.redis.Signal(syscall.SIGCONT)
	if err != nil {
		x.Fatalf("wake the server: %v", err)
	}
}
