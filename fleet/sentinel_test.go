package fleet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

// masterIs starts a sentinel that names a master.
func masterIs(t *testing.T, master *atomic.Pointer[string]) string {
	t.Helper()
	return fake(t, func(words []string) string {
		if words[0] != "SENTINEL" {
			return ""
		}
		if !strings.EqualFold(words[1], "get-master-addr-by-name") {
			return list()
		}
		host, port, _ := net.SplitHostPort(*master.Load())
		return list(text(host), text(port))
	})
}

// TestNoLinkToAFormerMasterIsKept: a stream that connects may learn of the new master first, also right after links were left for another
// reason.
func TestNoLinkToAFormerMasterIsKept(t *testing.T) {
	for name, moment := range map[string]time.Duration{"left at once": -time.Hour, "left a moment ago": 0} {
		t.Run(name, func(t *testing.T) {
			old, fresh := servers.StartRedis(t), servers.StartRedis(t)
			var master atomic.Pointer[string]
			master.Store(&old.Addr)
			f, n := open(t, Config{Servers: Servers{Kind: Sentinel, Addresses: []string{masterIs(t, &master)}, Master: "m"}})
			await(t, "all links", func() bool { return f.Stats().Idle == fewStreams })
			n.leaving.Lock()
			n.left = processTime() + moment
			n.leaving.Unlock()
			master.Store(&fresh.Addr)
			conn, err := f.topology.(*sentinel).connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			await(t, "all links to lead to the new master", func() bool { return linksTo(n, fresh.Addr) == fewStreams })
		})
	}
}

// TestSentinelsThatAreKnownNoMoreAreForgotten, but not those that were configured, nor the one that was asked.
func TestSentinelsThatAreKnownNoMoreAreForgotten(t *testing.T) {
	s := &sentinel{servers: &Servers{Addresses: []string{"10.0.0.1:1"}}, clients: map[string]*redis.SentinelClient{}}
	know := func(asked string, hosts ...string) []string {
		var others []map[string]string
		for _, host := range hosts {
			others = append(others, map[string]string{"ip": host, "port": "1"})
		}
		s.learn(asked, others)
		return slices.Sorted(maps.Keys(s.clients))
	}
	for _, step := range []struct{ got, want []string }{
		{know("10.0.0.1:1", "10.0.0.2", "10.0.0.3"), []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}},
		{know("10.0.0.2:1", "10.0.0.4"), []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.4:1"}},
		{know("10.0.0.1:1"), []string{"10.0.0.1:1"}},
	} {
		if !slices.Equal(step.got, step.want) {
			t.Errorf("the sentinels are %v, want %v", step.got, step.want)
		}
	}
	for _, client := range s.clients {
		client.Close()
	}
}

// linksTo is how many usable links lead to an address.
func linksTo(n *Node, address string) (count int) {
	for _, s := range n.streams {
		if l := s.link.Load(); l != nil && l.usable() && l.conn.RemoteAddr().String() == address {
			count++
		}
	}
	return count
}

// TestALinkThatWasBeingMadeIsLeftToo: a stream may dial the old master when the links to it are left.
func TestALinkThatWasBeingMadeIsLeftToo(t *testing.T) {
	old, fresh := servers.StartRedis(t), servers.StartRedis(t)
	dialling, dial := make(chan struct{}), make(chan struct{})
	var dials atomic.Int64
	f := &Fleet{servers: Servers{Streams: 1}.withDefaults(Bounds{}), bounds: Bounds{}.withDefaults()}
	n := f.node("n").start(func(ctx context.Context) (net.Conn, error) {
		address := fresh.Addr
		if dials.Add(1) == 1 {
			close(dialling)
			<-dial
			address = old.Addr
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})
	defer n.close()
	<-dialling
	n.leave()
	close(dial)
	await(t, "a link to the new master", func() bool { return linksTo(n, fresh.Addr) == 1 })
}

// TestASentinelThatIsCutOffIsNotHeard: it goes on to name the master of before the failover.
func TestASentinelThatIsCutOffIsNotHeard(t *testing.T) {
	old, fresh := servers.StartRedis(t).Addr, servers.StartRedis(t).Addr
	var epoch atomic.Int64
	epoch.Store(5)
	watches := func(master string, epoch func() int64) string {
		return fake(t, func(words []string) string {
			host, port, _ := net.SplitHostPort(master)
			switch {
			case words[0] != "SENTINEL":
				return ""
			case strings.EqualFold(words[1], "get-master-addr-by-name"):
				return list(text(host), text(port))
			case strings.EqualFold(words[1], "master"):
				return list(text("name"), text("m"), text("config-epoch"), text(fmt.Sprint(epoch())))
			}
			return list()
		})
	}
	sentinels := []string{watches(old, func() int64 { return 4 }), watches(fresh, epoch.Load)}
	f, _ := open(t, Config{Servers: Servers{Kind: Sentinel, Addresses: sentinels, Master: "m"}})
	s := f.topology.(*sentinel)
	ask := func() string {
		address, err := s.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	await(t, "the new master to be named", func() bool { return ask() == fresh })
	for range 50 {
		if address := ask(); address != fresh {
			t.Fatalf("the master is %s again, which was deposed", address)
		}
	}
	epoch.Store(3) // all were set up anew
	await(t, "the master that all sentinels know", func() bool { return ask() == old })
}
