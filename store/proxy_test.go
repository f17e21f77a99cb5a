package store

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestLostReplyIsNotRepeated(t *testing.T) {
	for name, mode := range map[string]servers.Mode{
		"swallowed": servers.DropReplies, "cut": servers.ResetReplies, "half closed": servers.HalfClose,
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			e := look(t, server, redis.Options{})
			p := servers.StartProxy(t, server.Addr)
			r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{p.Addr}}, Budget: 200 * time.Millisecond})
			settled(t, e, r)
			c := charge(t, "k", bucket(100, time.Hour), 1)
			spend(r, c)
			before := e.calls("evalsha")
			p.Set(servers.Fault{Mode: mode})
			wantUndecided(t, r, c, fleet.ReasonTimeout, fleet.ReasonClosed)
			p.Set(servers.Fault{})
			servers.Await(t, "a decision, and 98 left", func() error {
				d := usage(r, c)
				if d.Outcome != limit.Allowed || d.Remaining != 98 {
					return fmt.Errorf("%+v", d)
				}
				return nil
			})
			usages := r.Stats().Trips - 2
			if n := e.calls("evalsha") - before - usages; n > 1 {
				t.Fatalf("the script of one decision ran %d times", n)
			}
		})
	}
}

// notYet is an error until something holds.
func notYet(holds bool) error {
	if holds {
		return nil
	}
	return errNotYet
}

var errNotYet = net.UnknownNetworkError("not yet")

func TestDistantServerIsReachedThoughGreetingTakesLongerThanTheBudget(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 60 * time.Millisecond})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{p.Addr}, DB: 1}, Budget: 100 * time.Millisecond})
	awaitAllowed(t, r, charge(t, "k", bucket(1000, time.Hour), 1))
}

func TestBudgetMayBeLongerThanADial(t *testing.T) {
	p, r := proxied(t, servers.StartRedis(t), RedisConfig{Servers: fleet.Servers{DialTimeout: 100 * time.Millisecond}, Budget: 5 * time.Second})
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 300 * time.Millisecond})
	want(t, "by a server that takes longer than a dial may", spend(r, charge(t, "k", bucket(3, time.Hour), 1))[0], limit.Allowed, 1, 2)
}

// TestHangingDialCostsTheBudgetOnly listens without room for connections, so that connecting hangs. A call that waited for that would
// wait for an hour.
func TestHangingDialCostsTheBudgetOnly(t *testing.T) {
	addr := crowded(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{addr}, DialTimeout: time.Hour}, Budget: 50 * time.Millisecond})
	for range 3 {
		wantUndecided(t, r, charge(t, "k", bucket(3, time.Hour), 1), fleet.ReasonTimeout)
	}
}

// crowded is an address whose queue of connections is full.
func crowded(t *testing.T) string {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatalf("socket: %v", err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("bind: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatalf("listen: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("name of the socket: %v", err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}
