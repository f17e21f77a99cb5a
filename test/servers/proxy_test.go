package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// echo sends back what it receives, and counts the bytes.
type echo struct {
	addr  string
	heard atomic.Int64
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the echo: %v", err)
	}
	e := &echo{addr: l.Addr().String()}
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { e.answer(c) })
		}
	})
	return e
}

func (e *echo) answer(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		e.heard.Add(int64(n))
		c.Write(buf[:n])
	}
}

// caller is a client of the proxy with one connection.
type caller struct {
	t *testing.T
	net.Conn
}

func call(t *testing.T, addr string) caller {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("dial the proxy: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return caller{t, c}
}

// echo sends a text and returns what of its echo arrives within the time, with the error that ended it.
func (c caller) echo(text string, within time.Duration) (string, error) {
	c.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	c.SetReadDeadline(time.Now().Add(within))
	back := make([]byte, len(text))
	n, err := io.ReadFull(c, back)
	return string(back[:n]), err
}

// wantEcho fails the test unless the whole text comes back.
func (c caller) wantEcho(text string) {
	c.t.Helper()
	got, err := c.echo(text, 10*time.Second)
	if err != nil || got != text {
		c.t.Fatalf("echo of %d bytes: %d bytes, equal %v, error %v", len(text), len(got), got == text, err)
	}
}

// soon is how long a test waits for what must not come.
const soon = 50 * time.Millisecond

func TestProxyPassesAndCounts(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	first, second := call(t, p.Addr), call(t, p.Addr)
	first.wantEcho("one")
	second.wantEcho("two")
	if p.Accepted() != 2 || p.Open() != 2 || p.Met() != 0 {
		t.Fatalf("%d accepted, %d open, %d met a fault, want 2, 2, 0", p.Accepted(), p.Open(), p.Met())
	}
	first.Close()
	awaitOpen(t, p, 1)
}

func awaitOpen(t *testing.T, p *Proxy, n int64) {
	t.Helper()
	Await(t, "the connections of the proxy", func() error {
		if p.Open() != n {
			return fmt.Errorf("%d are open, want %d", p.Open(), n)
		}
		return nil
	})
}

func TestProxyDelays(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	c := call(t, p.Addr)
	p.Set(Fault{Mode: Latency, Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond})
	for range 5 {
		start := time.Now()
		c.wantEcho("x")
		if took := time.Since(start); took < 15*time.Millisecond {
			t.Fatalf("the echo took %v, want at least 15ms", took)
		}
	}
}

func TestProxyIsNarrowForAllConnectionsTogether(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	first, second := call(t, p.Addr), call(t, p.Addr)
	p.Set(Fault{Mode: Narrow, Bytes: 10, Delay: 10 * time.Millisecond})
	start := time.Now()
	var both sync.WaitGroup
	for _, c := range []caller{first, second} {
		both.Go(func() { c.echo(strings.Repeat("x", 50), 10*time.Second) })
	}
	both.Wait()
	// At most 10 ms are made up for.
	if took := time.Since(start); took < 90*time.Millisecond || p.Carried() != 100 {
		t.Fatalf("%d bytes took %v, want 100 and at least 90ms", p.Carried(), took)
	}
}

func TestProxyCutsRepliesIntoParts(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	c := call(t, p.Addr)
	for _, f := range []Fault{{Mode: OneByte}, {Mode: Slices}, {Mode: Slices, Delay: time.Millisecond}} {
		p.Set(f)
		for n := range 20 {
			c.wantEcho(strings.Repeat("abc", n) + ".")
		}
	}
	p.Set(Fault{Mode: Slices, Delay: time.Minute})
	c.Write([]byte("parts"))
	buf := make([]byte, 16)
	if n, err := c.Read(buf); err != nil || n >= 5 {
		t.Fatalf("one read brought %d bytes of 5 (%v), want a part", n, err)
	}
}

func TestProxyDropsReplies(t *testing.T) {
	e := startEcho(t)
	p := StartProxy(t, e.addr)
	c := call(t, p.Addr)
	p.Set(Fault{Mode: DropReplies})
	got, err := c.echo("lost", soon)
	if got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q and %v, want nothing in time", got, err)
	}
	Await(t, "a reply that is dropped", func() error {
		if e.heard.Load() != 4 || p.Met() != 1 {
			return fmt.Errorf("the server received %d bytes and %d replies were dropped, want 4 and 1", e.heard.Load(),
				p.Met())
		}
		return nil
	})
	p.Set(Fault{})
	got, err = c.echo("lost as well", soon)
	if got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after a reply that was dropped came %q and %v, want nothing: the stream would have a gap", got, err)
	}
	call(t, p.Addr).wantEcho("found")
}

func TestProxyResetsInTheMiddleOfAReply(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	c := call(t, p.Addr)
	p.Set(Fault{Mode: ResetReplies})
	got, err := c.echo("12345678", 10*time.Second)
	if got != "1234" || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %q and %v, want half and a reset", got, err)
	}
	awaitOpen(t, p, 0)
}

func TestProxyClosesTheWayBackOnly(t *testing.T) {
	e := startEcho(t)
	p := StartProxy(t, e.addr)
	c := call(t, p.Addr)
	p.Set(Fault{Mode: HalfClose})
	got, err := c.echo("one", 10*time.Second)
	if got != "" || !errors.Is(err, io.EOF) {
		t.Fatalf("got %q and %v, want the end of the stream", got, err)
	}
	c.Write([]byte("two"))
	Await(t, "the second request", func() error {
		if e.heard.Load() != 6 {
			return fmt.Errorf("the server received %d bytes, want 6", e.heard.Load())
		}
		return nil
	})
	wantDead(t, p, Deaths{Total: 1, AtOnce: 1}, 1)
	c.Close()
	awaitOpen(t, p, 0)
	wantDead(t, p, Deaths{Total: 1, AtOnce: 1}, 0)
}

// wantDead checks the counts of dead connections, and that the longest death is not forgotten.
func wantDead(t *testing.T, p *Proxy, want Deaths, now int64) {
	t.Helper()
	got := p.Deaths()
	if got.Longest == 0 {
		t.Fatalf("%+v: nothing was dead for any time", got)
	}
	got.Longest = 0
	if got != want || p.Dead() != now {
		t.Fatalf("%+v and %d dead now, want %+v and %d", got, p.Dead(), want, now)
	}
}

func TestProxyConnectionsInABlackHoleStayThere(t *testing.T) {
	e := startEcho(t)
	p := StartProxy(t, e.addr)
	old, idle := call(t, p.Addr), call(t, p.Addr)
	old.wantEcho("before")
	idle.wantEcho("before")
	p.Set(Fault{Mode: BlackHole})
	fresh := call(t, p.Addr)
	wantSilence(t, old)
	wantSilence(t, fresh)
	Await(t, "two dead connections", func() error {
		if n := p.Dead(); n != 2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	p.Set(Fault{})
	wantSilence(t, old)
	wantSilence(t, fresh)
	idle.wantEcho("after")
	if p.Dead() != 2 || p.Open() != 3 || e.heard.Load() != 17 {
		t.Fatalf("%d dead of %d open, the server received %d bytes, want 2 of 3 and 17", p.Dead(), p.Open(),
			e.heard.Load())
	}
	old.Close()
	fresh.Close()
	awaitOpen(t, p, 1)
	wantDead(t, p, Deaths{Total: 2, AtOnce: 2}, 0)
	if longest := p.Deaths().Longest; longest < 2*soon {
		t.Fatalf("the longest was dead for %v, want at least %v", longest, 2*soon)
	}
}

func wantSilence(t *testing.T, c caller) {
	t.Helper()
	got, err := c.echo("hello?", soon)
	if got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q and %v, want silence", got, err)
	}
}

func TestProxyHoldsOrResetsAShare(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	p.Set(Fault{Mode: HoldOrReset, Share: 0.5, Delay: 10 * time.Millisecond})
	c := call(t, p.Addr)
	var quick, held, reset int
	for range 200 {
		start := time.Now()
		_, err := c.echo("12345678", 10*time.Second)
		switch {
		case err != nil:
			reset++
			c = call(t, p.Addr)
		case time.Since(start) >= 10*time.Millisecond:
			held++
		default:
			quick++
		}
	}
	// Where no processor is idle, echoes that the proxy did not hold take long as well.
	if quick == 0 || held < 20 || reset < 20 || p.Met() < 60 || p.Met() > 140 {
		t.Fatalf("of 200: %d quick, %d held, %d reset, %d met the fault; want about 100, 50, 50, 100", quick, held,
			reset, p.Met())
	}
}

func TestProxySevers(t *testing.T) {
	p := StartProxy(t, startEcho(t).addr)
	c := call(t, p.Addr)
	c.wantEcho("here")
	p.Sever()
	if got, err := c.echo("gone", 10*time.Second); err == nil {
		t.Fatalf("got %q after all connections were reset", got)
	}
	awaitOpen(t, p, 0)
	call(t, p.Addr).wantEcho("again")
}

func TestProxyOfADeadServerResets(t *testing.T) {
	p := StartProxy(t, FreeAddr(t))
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		return // the reset came first
	}
	defer c.Close()
	if got, err := (caller{t, c}).echo("anyone?", 10*time.Second); err == nil {
		t.Fatalf("got %q from a server that is not there", got)
	}
}
