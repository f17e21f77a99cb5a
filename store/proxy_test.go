package store

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// proxy stands between a store and its server, and loses replies when told to.
type proxy struct {
	addr    string
	swallow atomic.Bool  // replies go nowhere
	cut     atomic.Bool  // the connection ends instead of the reply
	late    atomic.Int64 // nanoseconds that a reply takes longer
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p := &proxy{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.carry(c, server) })
		}
	})
	return p
}

// carry copies both ways until one side ends.
func (p *proxy) carry(c net.Conn, server string) {
	defer c.Close()
	s, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer s.Close()
	var back sync.WaitGroup
	back.Go(func() {
		defer c.Close()
		p.replies(c, s)
	})
	io.Copy(s, c)
	s.Close()
	back.Wait()
}

func (p *proxy) replies(c, s net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil || p.cut.Load() {
			return
		}
		if p.swallow.Load() {
			continue
		}
		<-time.After(time.Duration(p.late.Load()))
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestLostReplyIsNotRepeated(t *testing.T) {
	for name, lose := range map[string]func(p *proxy, on bool){
		"swallowed": func(p *proxy, on bool) { p.swallow.Store(on) },
		"cut":       func(p *proxy, on bool) { p.cut.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			e := look(t, server, redis.Options{})
			p := startProxy(t, server.Addr)
			r := openRedis(t, RedisConfig{Address: p.addr, Budget: 200 * time.Millisecond})
			settled(t, e, r)
			c := charge(t, "k", bucket(100, time.Hour), 1)
			spend(r, c)
			before := e.calls("evalsha")
			lose(p, true)
			wantUndecided(t, r, c, ReasonTimeout, ReasonClosed)
			lose(p, false)
			servers.Await(t, "a decision", func() error { return notYet(usage(r, c).Outcome == limit.Allowed) })
			wantLeft(t, r, c, 98)
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
	p := startProxy(t, server.Addr)
	p.late.Store(int64(60 * time.Millisecond))
	r := openRedis(t, RedisConfig{Address: p.addr, Budget: 100 * time.Millisecond, DB: 1})
	awaitAllowed(t, r, charge(t, "k", bucket(1000, time.Hour), 1))
}

// TestHangingDialCostsTheBudgetOnly listens without room for connections, so that connecting hangs.
func TestHangingDialCostsTheBudgetOnly(t *testing.T) {
	addr := crowded(t)
	r := openRedis(t, RedisConfig{Address: addr, Budget: 50 * time.Millisecond, DialTimeout: 2 * time.Second})
	for range 3 {
		start := time.Now()
		wantUndecided(t, r, charge(t, "k", bucket(3, time.Hour), 1), ReasonTimeout)
		if took := time.Since(start); took > time.Second {
			t.Fatalf("the answer took %v with a budget of 50 ms", took)
		}
	}
}

// crowded is an address whose queue of connections is full.
func crowded(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
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
