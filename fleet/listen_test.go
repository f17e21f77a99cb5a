package fleet

import (
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestASubscriptionIsMadeAgainWhereItsServerIsSucceeded: the old one may live on, and hear nothing.
func TestASubscriptionIsMadeAgainWhereItsServerIsSucceeded(t *testing.T) {
	f, n := open(t, Config{Servers: at(servers.StartRedis(t).Addr)})
	var gaps atomic.Int64
	stop := f.Listen(Listener{Channel: "news", Message: func(string) {}, Gap: func() { gaps.Add(1) }})
	defer stop()
	await(t, "the subscription", func() bool { return gaps.Load() == 1 })
	n.succeed()
	await(t, "another one", func() bool { return gaps.Load() == 2 })
}
