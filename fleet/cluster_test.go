package fleet

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestRedirectsNameAddressesThatCanBeDialled also where a server knows no host, names its own machine, or writes no brackets.
func TestRedirectsNameAddressesThatCanBeDialled(t *testing.T) {
	for _, step := range []struct{ reply, origin, want string }{
		{"MOVED 3999 10.0.0.2:6381", "10.0.0.1:6379", "10.0.0.2:6381"},
		{"MOVED 3999 redis-2.local:6381", "10.0.0.1:6379", "redis-2.local:6381"},
		{"MOVED 3999 ::1:6381", "[::1]:6379", "[::1]:6381"},
		{"MOVED 3999 [fd00::2]:6381", "10.0.0.1:6379", "[fd00::2]:6381"},
		{"ASK 3999 fd00::2:6381", "10.0.0.1:6379", "[fd00::2]:6381"},
		{"MOVED 3999 :6381", "10.0.0.1:6379", "10.0.0.1:6381"},
		{"ASK 3999 :6381", "[fd00::1]:6379", "[fd00::1]:6381"},
		{"MOVED 3999 127.0.0.1:6381", "10.0.0.1:6379", "10.0.0.1:6381"},
		{"MOVED 3999 127.0.0.1:6381", "127.0.0.1:6379", "127.0.0.1:6381"},
		{"MOVED 3999 nowhere", "10.0.0.1:6379", "nowhere"},
	} {
		c := &cluster{wake: make(chan struct{}, 1)}
		got, asking := c.redirected(ReplyError(step.reply), step.origin)
		if got != step.want || asking != strings.HasPrefix(step.reply, "ASK") {
			t.Errorf("%q of %s leads to %q, asking: %v; want %q", step.reply, step.origin, got, asking, step.want)
		}
	}
}

// oneMaster starts a server on a host that has all slots of a cluster, and answers calls with what answer returns.
func oneMaster(t *testing.T, host string, answer func(words []string) string) string {
	t.Helper()
	var self atomic.Pointer[string]
	address := fakeOn(t, host, func(words []string) string {
		if words[0] != "CLUSTER" {
			return answer(words)
		}
		host, port, _ := net.SplitHostPort(*self.Load())
		return list(list(":0\r\n", ":16383\r\n", list(text(host), ":"+port+"\r\n", text("id"))))
	})
	self.Store(&address)
	return address
}

// TestARedirectWithoutAHostIsFollowed to the machine of the server that sent it.
func TestARedirectWithoutAHostIsFollowed(t *testing.T) {
	const host = "127.0.0.2" // a host that is missing would be 127.0.0.1
	target := fakeOn(t, host, func([]string) string { return ":1\r\n" })
	_, port, _ := net.SplitHostPort(target)
	address := oneMaster(t, host, func(words []string) string {
		if words[0] == "INCR" {
			return "-MOVED 3999 :" + port + "\r\n"
		}
		return ""
	})
	_, n := open(t, Config{Servers: Servers{Kind: Cluster, Addresses: []string{address}}, Bounds: Bounds{Silence: time.Minute}})
	err := n.Do(t.Context(), incr("k"), time.Minute)
	if err != nil {
		t.Errorf("a call that was sent elsewhere: %v", err)
	}
}

// TestAServerIsNotBlamedForAnother: the one that a call was sent on to cannot be reached, and the one that answered is well.
func TestAServerIsNotBlamedForAnother(t *testing.T) {
	away := servers.FreeAddr(t)
	address := oneMaster(t, "127.0.0.1", func(words []string) string {
		if words[0] == "INCR" {
			return "-MOVED 3999 " + away + "\r\n"
		}
		return ""
	})
	_, n := open(t, Config{Servers: Servers{Kind: Cluster, Addresses: []string{address}}, Bounds: Bounds{Silence: time.Minute}})
	for range 50 {
		err := n.Do(t.Context(), incr("k"), time.Minute)
		if Reason(err) != ReasonDial {
			t.Fatalf("a call to a server that is away: %v", err)
		}
	}
	if state := n.Breaker().State(); state != breaker.Closed {
		t.Errorf("the breaker of the server that answers is %v, want it closed", state)
	}
}

func TestASuccessorInAClusterSettles(t *testing.T) {
	var master atomic.Pointer[string]
	answer := func(words []string) string {
		if words[0] != "CLUSTER" {
			return ""
		}
		host, port, _ := net.SplitHostPort(*master.Load())
		return list(list(":0\r\n", ":16383\r\n", list(text(host), ":"+port+"\r\n", text("id"))))
	}
	first, second := fakeOn(t, "127.0.0.1", answer), fakeOn(t, "127.0.0.1", answer)
	master.Store(&first)
	f := New(Config{Servers: Servers{Kind: Cluster, Addresses: []string{first, second}}})
	t.Cleanup(f.Close)
	f.Ready(t.Context())
	n, _ := f.Place("k")
	if n.address != first || n.since.Load() != 0 {
		t.Fatalf("the first master is %s, and has succeeded one at %d; want %s, which has succeeded none", n.address, n.since.Load(), first)
	}
	master.Store(&second)
	servers.Await(t, "the failover", func() error {
		n, _ = f.Place("k")
		if n.address != second {
			return fmt.Errorf("the master is %s", n.address)
		}
		return nil
	})
	if n.since.Load() == 0 {
		t.Error("a server that has succeeded another one does not count as young: tokens are leased from it at once")
	}
}

// TestAServerThatFailsIsAskedForTheMapLast: it may be cut off from the others, and know an old map only.
func TestAServerThatFailsIsAskedForTheMapLast(t *testing.T) {
	c := servers.StartCluster(t)
	f, failing := open(t, Config{Servers: Servers{Kind: Cluster, Addresses: c.Addrs()[:1]}})
	await(t, "all links", func() bool { return !slices.ContainsFunc(f.Nodes(), func(n *Node) bool { return !n.healthy() }) })
	for range 100 {
		_ = failing.Breaker().Do(func() breaker.Result { return breaker.Failure })
	}
	masters := len(f.Nodes())
	all := f.topology.(*cluster).candidates()
	if at := slices.Index(all[:masters-1], failing.address); at >= 0 || !slices.Contains(all, failing.address) {
		t.Errorf("of %q the server that fails, %s, has place %d", all, failing.address, at)
	}
}

// TestAClusterThatNamesNoHosts: its servers are where the one is that tells the map.
func TestAClusterThatNamesNoHosts(t *testing.T) {
	for _, kind := range []string{"unknown-endpoint", "hostname"} {
		c := servers.StartCluster(t, "--cluster-preferred-endpoint-type", kind)
		f, _ := open(t, Config{Servers: Servers{Kind: Cluster, Addresses: c.Addrs()[:1]}, Bounds: Bounds{Silence: time.Minute}})
		addresses := c.Addrs()
		for i := range 20 {
			n, _ := f.Place(fmt.Sprint("key", i))
			if !slices.Contains(addresses[:3], n.address) {
				t.Fatalf("%s: a key is at %q, and the masters are %q", kind, n.address, addresses[:3])
			}
			_, err := n.Ask(time.Minute, fmt.Sprint("key", i), "SET", fmt.Sprint("key", i), "1")
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}
