package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/test/servers"
)

// open begins to use servers, until the test ends.
func open(t testing.TB, c Config) (*Fleet, *Node) {
	t.Helper()
	f := New(c)
	t.Cleanup(f.Close)
	f.Ready(t.Context())
	n, _ := f.Place("k")
	return f, n
}

// at is one server.
func at(address string) Servers { return Servers{Addresses: []string{address}} }

// incr is a call that adds one to a counter.
func incr(key string) *Call { return &Call{Wire: command("INCR", key), Key: key} }

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	servers.Await(t, what, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
}

// countAt is the value of a counter on a server.
func countAt(t *testing.T, server *servers.Redis, key string) string {
	t.Helper()
	return fmt.Sprint(server.Do(t, "GET", key))
}

// TestRepliesReachTheirCallers: many callers share the connections, and each gets the reply to its own call.
func TestRepliesReachTheirCallers(t *testing.T) {
	f, n := open(t, Config{Servers: at(servers.StartRedis(t).Addr), Bounds: Bounds{Silence: time.Minute}})
	var wrong atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			c := new(Call)
			for j := range 200 {
				text := fmt.Sprint(i, "-", j)
				c.Wire = AppendWord(AppendWord(AppendCommand(c.Wire[:0], 2), "ECHO"), text)
				if err := n.Send(c, time.Minute); err != nil || string(c.Reply.Data) != text {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
	if wrong.Load() > 0 || f.Stats().Connections > 4 {
		t.Errorf("%d wrong replies over %d connections, want none over a few", wrong.Load(), f.Stats().Connections)
	}
}

// TestCallsThatWaitGoTogether: with many callers a write carries several calls. The server counts how often it reads.
func TestCallsThatWaitGoTogether(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr), Bounds: Bounds{Silence: time.Minute}})
	reads := func() (n int) {
		_, after, _ := strings.Cut(fmt.Sprint(server.Do(t, "INFO", "stats")), "total_reads_processed:")
		_, _ = fmt.Sscan(after, &n)
		return n
	}
	before := reads()
	const callers, each = 64, 200
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			c := incr("k")
			for range each {
				if err := n.Send(c, time.Minute); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	all.Wait()
	if made := reads() - before; made > callers*each*3/10 {
		t.Errorf("%d reads by the server for %d calls, want at most 0.3 each", made, callers*each)
	}
}

// TestASilentServerIsLeftAtOnce: its waiting calls end together, further ones do not wait, and what it executed late is reported.
func TestASilentServerIsLeftAtOnce(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr), Bounds: Bounds{Silence: 50 * time.Millisecond, Patience: time.Hour}})
	server.Hang(t)
	calls := make([]*Call, 8)
	var all sync.WaitGroup
	for i := range calls {
		calls[i] = incr("k")
		all.Go(func() {
			err := n.Send(calls[i], time.Hour)
			if !errors.Is(err, errSilent) {
				t.Errorf("a call to a silent server: %v", err)
			}
		})
	}
	all.Wait()
	late := make(chan error, len(calls))
	pending := 0
	for _, c := range calls {
		if c.Pending() {
			pending++
			c.Adopt(func(c *Call, err error) { late <- err })
		}
	}
	if pending == 0 {
		t.Fatal("no call was sent before the server was known to be silent")
	}
	await(t, "a call that is not sent, because the server is silent on every connection", func() bool {
		c := incr("other")
		err := n.Send(c, time.Hour)
		return !c.Pending() && Reason(err) == ReasonTimeout && !MayHaveRun(err)
	})
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the server: %v", err)
	}
	for range pending {
		if err := <-late; err != nil {
			t.Errorf("a late reply: %v", err)
		}
	}
	if got := countAt(t, server, "k"); got != fmt.Sprint(pending) {
		t.Errorf("%s calls ran, want the %d whose replies came late", got, pending)
	}
	await(t, "a server that answers", func() bool { return n.Send(incr("k"), time.Hour) == nil })
}

// TestASilentConnectionIsGivenUp: calls on it are reported as lost, and others go over a new one.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	f, n := open(t, Config{Servers: at(p.Addr), Bounds: Bounds{Silence: 20 * time.Millisecond, Patience: time.Hour}})
	await(t, "all connections", func() bool { return f.Stats().Idle == fewStreams })
	p.Set(servers.Fault{Mode: servers.BlackHole})
	c := incr("k")
	if err := n.Send(c, time.Hour); !errors.Is(err, errSilent) || !c.Pending() {
		t.Fatalf("a call into a black hole: %v, pending: %v", err, c.Pending())
	}
	p.Set(servers.Fault{})
	lost := make(chan error, 1)
	c.Adopt(func(_ *Call, err error) { lost <- err })
	if err := <-lost; !MayHaveRun(err) || Reason(err) != ReasonTimeout {
		t.Errorf("a call on a connection that was given up: %v (%s)", err, Reason(err))
	}
	await(t, "a call that succeeds", func() bool { return n.Send(incr("k"), time.Hour) == nil })
}

// TestPatienceEndsWhileRepliesFlow: a call whose patience is short is left, others wait on, and the reply that comes late is read.
func TestPatienceEndsWhileRepliesFlow(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	_, n := open(t, Config{Servers: at(p.Addr), Bounds: Bounds{Silence: time.Minute, Patience: time.Hour}})
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 2 * time.Second})
	hasty, calm := incr("hasty"), incr("calm")
	var all sync.WaitGroup
	all.Go(func() {
		if err := n.Send(calm, time.Hour); err != nil {
			t.Errorf("a call with patience: %v", err)
		}
	})
	if err := n.Send(hasty, 20*time.Millisecond); !errors.Is(err, errPatience) || !hasty.Pending() {
		t.Fatalf("a call without patience: %v, pending: %v", err, hasty.Pending())
	}
	late := make(chan error, 1)
	hasty.Adopt(func(_ *Call, err error) { late <- err })
	if err := <-late; err != nil {
		t.Errorf("the late reply: %v", err)
	}
	if got, err := hasty.Reply.Int(); got != 1 || err != nil {
		t.Errorf("the late reply is %d, %v; want 1", got, err)
	}
	all.Wait()
}

// TestAskReturnsNoReplyWithAnError: one that is late is written while the caller goes on.
func TestAskReturnsNoReplyWithAnError(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr), Bounds: Bounds{Silence: time.Minute}})
	reply, err := n.Ask(time.Minute, "k", "NOSUCH")
	if !IsReply(err, "ERR unknown command") || reply.Kind != 0 || reply.Data != nil {
		t.Errorf("the reply is %+v with the error %v, want none", reply, err)
	}
}

// TestALostConnectionIsReplaced: calls that were sent may have run, and the next ones wait for the new connection.
func TestALostConnectionIsReplaced(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	f, n := open(t, Config{Servers: at(p.Addr), Bounds: Bounds{Silence: time.Minute}})
	await(t, "all connections", func() bool { return f.Stats().Idle == fewStreams })
	p.Set(servers.Fault{Mode: servers.ResetReplies})
	if err := n.Send(incr("k"), time.Minute); !MayHaveRun(err) || Reason(err) != ReasonClosed {
		t.Fatalf("a call on a connection that was reset: %v", err)
	}
	p.Set(servers.Fault{})
	await(t, "new connections", func() bool { return f.Stats().Idle == fewStreams })
	if err := n.Send(incr("k"), time.Minute); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if got := countAt(t, server, "k"); got != "2" {
		t.Errorf("%s calls ran, want 2: none is repeated", got)
	}
}

// TestTheWayIsMeasuredAgain once all connections were lost: the server under that name may be another one, farther away.
func TestTheWayIsMeasuredAgain(t *testing.T) {
	const away = 20 * time.Millisecond
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	f, n := open(t, Config{Servers: at(p.Addr), Bounds: Bounds{Silence: time.Minute}})
	await(t, "all connections", func() bool { return f.Stats().Idle == fewStreams })
	n.usual.least.Store(1)
	p.Set(servers.Fault{Mode: servers.Latency, Delay: away})
	for _, s := range n.streams {
		s.leave()
	}
	await(t, "the way to the other server", func() bool {
		if err := n.Send(incr("k"), time.Minute); err != nil {
			t.Fatal(err)
		}
		return n.usual.least.Load() >= int64(away)
	})
}

// TestCallsWaitForTheFirstConnection: a call that comes before the connection is made is sent when it is.
func TestCallsWaitForTheFirstConnection(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 50 * time.Millisecond})
	f := New(Config{Servers: at(p.Addr), Bounds: Bounds{Silence: time.Minute}})
	defer f.Close()
	n, _ := f.Place("k")
	if err := n.Send(incr("k"), time.Minute); err != nil {
		t.Errorf("a call before the first connection: %v", err)
	}
	if f.Stats().Waited == 0 {
		t.Error("the call did not wait for a connection")
	}
}

// TestTheBreakerOpensOnSilence also where no call waits for longer than its caller allows.
func TestTheBreakerOpensOnSilence(t *testing.T) {
	server := servers.StartRedis(t)
	_, n := open(t, Config{Servers: at(server.Addr)})
	server.Hang(t)
	await(t, "an open breaker", func() bool {
		_ = n.Do(t.Context(), incr("k"), time.Second)
		return n.Breaker().State() == breaker.Open
	})
}

// TestStallsDoNotCount: time in which this process got no processor uses up neither silence nor patience.
func TestStallsDoNotCount(t *testing.T) {
	f := &Fleet{bounds: Bounds{}.withDefaults()}
	n := f.node("n")
	here, there := net.Pipe()
	defer there.Close()
	go io.Copy(io.Discard, there)
	l := newLink(here, n, func() {})
	defer l.end(net.ErrClosed)
	c := incr("k")
	c.begin()
	l.send(c, processTime(), 50*time.Millisecond)
	l.mu.Lock()
	l.watch.looked -= time.Hour // as if nothing had run for an hour
	l.mu.Unlock()
	l.watch.look()
	if s := c.state.Load(); s != waiting || l.silent.Load() {
		t.Errorf("after a stall of an hour the call is in state %d and the server silent: %v; want it to wait", s, l.silent.Load())
	}
	if err := <-c.done; !errors.Is(err, errSilent) && !errors.Is(err, errPatience) {
		t.Errorf("the call of a server that never answers ended with %v, want silence or the end of patience", err)
	}
}

// sockets are the two ends of a connection.
func sockets(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	there, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return here, there
}

// TestWhatTheSocketHoldsIsReadFirst: a server whose reply has arrived is not silent, though the reader got no time.
func TestWhatTheSocketHoldsIsReadFirst(t *testing.T) {
	conn, other := sockets(t)
	socket := socketOf(conn)
	if readable(socket) {
		t.Fatal("an empty socket is readable")
	}
	if _, err := other.Write([]byte("+OK\r\n")); err != nil {
		t.Fatal(err)
	}
	await(t, "bytes to read", func() bool { return readable(socket) })
}

func TestClosedFleet(t *testing.T) {
	f := New(Config{Servers: at(servers.FreeAddr(t))})
	n, _ := f.Place("k")
	f.Close()
	if err := n.Do(context.Background(), incr("k"), time.Minute); Reason(err) != ReasonShutdown {
		t.Errorf("a call after the end: %v", err)
	}
}
