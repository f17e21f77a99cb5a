package connlimit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillway-mesh/spillway/test/must"
)

// fake is a connection from an address that a test chooses.
type fake struct {
	net.Conn
	from net.Addr
}

// RemoteAddr is where it comes from.
func (f *fake) RemoteAddr() net.Addr { return f.from }

// SyscallConn is not asked for.
func (f *fake) SyscallConn() (syscall.RawConn, error) { return nil, errors.New("no socket") }

// fakes is a listener whose connections a test makes.
type fakes struct{ conns chan net.Conn }

// Accept returns the next one.
func (f fakes) Accept() (net.Conn, error) { return <-f.conns, nil }

// Close does nothing.
func (f fakes) Close() error { return nil }

// Addr is not asked for.
func (f fakes) Addr() net.Addr { return nil }

const each = 1000 // bytes of an idle connection in these tests

// rig is a limit with a listener.
type rig struct {
	*Limit
	at net.Listener
	in chan net.Conn
}

func newRig(t *testing.T, bytes int64, kind Kind) *rig {
	t.Helper()
	r := &rig{Limit: New(bytes, slog.New(slog.DiscardHandler)), in: make(chan net.Conn, 1)}
	t.Cleanup(r.Limit.Close)
	kind.Name, kind.Bytes = "test", each
	r.at = r.Listen(fakes{r.in}, kind)
	return r
}

// connect makes a connection from an address.
func (r *rig) connect(t *testing.T, from string) (client net.Conn, server *Conn) {
	t.Helper()
	one, other := net.Pipe()
	r.in <- &fake{other, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	conn := must.Get(r.at.Accept())(t)
	t.Cleanup(func() { one.Close(); conn.Close() })
	return one, conn.(*Conn)
}

// gone reports whether a connection was closed.
func (r *rig) gone(c *Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, open := r.conns[c]
	return !open
}

// expectOpen fails the test unless these are open, and no others of all.
func (r *rig) expectOpen(t *testing.T, what string, all map[string]*Conn, open ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, name := range open {
		want[name] = true
	}
	for name, c := range all {
		if r.gone(c) == want[name] {
			t.Errorf("%s: %s is open: %v, want %v", what, name, !want[name], want[name])
		}
	}
}

func TestWhoMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4*each, Kind{Whole: 4 * each})
		all := map[string]*Conn{}
		for _, name := range []string{"used", "old", "young"} {
			_, all[name] = r.connect(t, "192.0.2.1")
			<-time.After(time.Millisecond)
		}
		all["used"].Sent([]byte("an answer"))
		_, all["other"] = r.connect(t, "192.0.2.2")
		r.expectOpen(t, "full", all, "used", "old", "young", "other")

		_, all["new"] = r.connect(t, "192.0.2.3")
		r.expectOpen(t, "one too many", all, "used", "young", "other", "new")
		<-time.After(time.Millisecond)
		_, all["newer"] = r.connect(t, "192.0.2.3")
		if r.gone(all["other"]) || r.gone(all["newer"]) || r.Stats().Bytes != 4*each {
			t.Errorf("%+v: an address with one connection gave way to one with two", r.Stats())
		}
		if !r.Full() {
			t.Error("Full() = false after a connection was closed")
		}
		<-time.After(fullFor)
		if r.Full() {
			t.Error("Full() = true a minute later")
		}
	})
}

func TestTheLargestOfAnAddressGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 6*each, Kind{Whole: 4 * each})
		all := map[string]*Conn{}
		for _, name := range []string{"old", "large", "young"} {
			_, all[name] = r.connect(t, "192.0.2.1")
		}
		all["large"].Received(make([]byte, each))
		r.expectOpen(t, "half full", all, "old", "large", "young")
		for _, name := range []string{"a", "b"} {
			_, all[name] = r.connect(t, "192.0.2.2")
		}
		r.expectOpen(t, "full", all, "old", "young", "a", "b")
	})
}

func TestAListenerHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 100*each, Kind{Conns: 2})
		all := map[string]*Conn{}
		for _, name := range []string{"a", "b", "c"} {
			_, all[name] = r.connect(t, "192.0.2.1")
			<-time.After(time.Millisecond)
		}
		r.expectOpen(t, "two of three", all, "b", "c")
		if got := r.Stats(); got.Open["test"] != 2 || got.Closed["room"] != 1 || got.Bytes != 2*each {
			t.Errorf("%+v, want two connections, and one closed for room", got)
		}
	})
}

func TestARequestThatIsNotCompleteInTimeEndsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1<<20, Kind{HTTP2: true})
		all := map[string]*Conn{}
		for name, ends := range map[string]bool{"half": false, "whole": true} {
			_, all[name] = r.connect(t, "192.0.2.1")
			all[name].Received(wire(http2.ClientPreface, func(f *http2.Framer) { headers(f, 1, ends, true) }))
		}
		<-time.After(unfinishedMost - time.Second)
		synctest.Wait()
		r.expectOpen(t, "in time", all, "half", "whole")
		<-time.After(2*time.Second + sweepEvery)
		synctest.Wait()
		r.expectOpen(t, "later", all, "whole")
		if r.Stats().Closed["unfinished"] != 1 {
			t.Errorf("%+v, want one that was not complete in time", r.Stats())
		}
	})
}

// TestLargeRequestsTakeTurns: while the budget is full, the connections of the address that holds most read on one
// after the other.
func TestLargeRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = 2 * freeBytes
		r := newRig(t, 2*large+100*each, Kind{Whole: 2 * large})
		_, first := r.connect(t, "192.0.2.1")
		_, second := r.connect(t, "192.0.2.1")
		_, small := r.connect(t, "192.0.2.1")
		first.Received(make([]byte, large/2))
		second.Received(make([]byte, large/2+100*each/2))
		if r.Stats().Bytes <= 2*large+100*each {
			t.Fatalf("%+v: it is not full", r.Stats())
		}
		order := make(chan string, 3)
		admit := func(name string, c *Conn) {
			go func() {
				if c.Admit() == nil {
					order <- name
				}
			}()
			synctest.Wait()
		}
		admit("first", first)
		admit("second", second)
		admit("small", small)
		expectOrder(t, order, "first", "small")
		first.Sent([]byte("an answer"))
		synctest.Wait()
		expectOrder(t, order, "second")
	})
}

func expectOrder(t *testing.T, order <-chan string, want ...string) {
	t.Helper()
	for _, name := range want {
		select {
		case got := <-order:
			if got != name {
				t.Errorf("%s reads on, want %s", got, name)
			}
		default:
			t.Errorf("%s waits, want that it reads on", name)
		}
	}
	if len(order) > 0 {
		t.Errorf("%s reads on, too", <-order)
	}
}

func TestAnAnswerThatIsNotTakenIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 100*each, Kind{HTTP2: true})
		_, c := r.connect(t, "192.0.2.1")
		Hold(c.RemoteAddr(), 5*each)
		if got := r.Stats().Bytes; got != 6*each {
			t.Errorf("%d bytes are held, want %d", got, 6*each)
		}
		c.Close()
		Hold(c.RemoteAddr(), -5*each)
		if got := r.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes are held after the end, want none", got)
		}
		Hold(&net.TCPAddr{}, each) // of no limit
	})
}

// TestAnswersThatAreNotTakenMakeRoom: a client that sends nothing more holds no more than others for that.
func TestAnswersThatAreNotTakenMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8*each, Kind{HTTP2: true})
		all := map[string]*Conn{}
		_, all["taker"] = r.connect(t, "192.0.2.1")
		_, all["silent"] = r.connect(t, "192.0.2.2")
		Hold(all["taker"].RemoteAddr(), each)
		Hold(all["silent"].RemoteAddr(), 6*each)
		r.expectOpen(t, "a little too much", all, "taker", "silent")
		Hold(all["silent"].RemoteAddr(), 2*each)
		r.expectOpen(t, "too much", all, "taker")
	})
}

// TestWaitersEndWithTheirConnection closes a connection that waits for its turn.
func TestWaitersEndWithTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, freeBytes, Kind{Whole: 2 * freeBytes})
		client, c := r.connect(t, "192.0.2.1")
		c.Received(make([]byte, freeBytes*5/8))
		if c.Admit() != nil {
			t.Fatal("the only one has to wait")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, c)
		}()
		synctest.Wait()
		client.Close()
		<-ctx.Done()
	})
}

// TestAConnectionThatIsBeingClosedTakesNoTurn: an answer of it is counted before it is taken out, and its reader asks
// to read on in between.
func TestAConnectionThatIsBeingClosedTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, freeBytes, Kind{Whole: 4 * freeBytes})
		_, closing := r.connect(t, "192.0.2.1")
		_, other := r.connect(t, "192.0.2.1")
		other.Received(make([]byte, freeBytes*5/8-each))
		closing.mu.Lock()
		closing.closed = true
		closing.count()
		closing.mu.Unlock()
		r.mu.Lock()
		err := r.await(closing)
		r.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		r.remove(closing)
		order := make(chan string, 1)
		go func() {
			if other.Admit() == nil {
				order <- "other"
			}
		}()
		synctest.Wait()
		expectOrder(t, order, "other")
		other.Close() // which ends its wait
	})
}

// TestAnAnswerEndsAWait: a server of HTTP/1 reads on while it answers, and does not end a call before that read ends.
func TestAnAnswerEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, freeBytes, Kind{Whole: 4 * freeBytes})
		_, first := r.connect(t, "192.0.2.1")
		_, second := r.connect(t, "192.0.2.1")
		Hold(first.RemoteAddr(), freeBytes)
		for _, c := range []*Conn{first, second} {
			c.mu.Lock()
			c.received = freeBytes
			c.count()
			c.mu.Unlock()
		}
		if first.Admit() != nil {
			t.Fatal("the first one has to wait")
		}
		order := make(chan string, 1)
		go func() {
			if second.Admit() == nil {
				order <- "second"
			}
		}()
		synctest.Wait()
		expectOrder(t, order)
		second.Sent([]byte("an answer"))
		synctest.Wait()
		expectOrder(t, order, "second")
		second.Close() // which ends its wait
	})
}

// TestOnlyGreetingsAreHurried: a connection over HTTP/1 has no greeting, and its answer may take longer.
func TestOnlyGreetingsAreHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, greets := range []bool{true, false} {
			r := newRig(t, 1<<20, Kind{HTTP2: greets, Whole: 1})
			client, c := r.connect(t, "192.0.2.1")
			r.Hurry(time.Second)
			<-time.After(2 * time.Second)
			go func() { _, _ = io.Copy(io.Discard, client) }()
			_, err := c.Write([]byte("an answer"))
			if (err != nil) != greets {
				t.Errorf("greets %v: Write() = %v after the time for greetings", greets, err)
			}
		}
	})
}

func TestACallThatBothSidesTalkInStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1<<20, Kind{HTTP2: true})
		_, c := r.connect(t, "192.0.2.1")
		c.Received(wire(http2.ClientPreface, begins(1, false, true)))
		c.Sent(wire("", begins(1, false, true)))
		<-time.After(2 * unfinishedMost)
		synctest.Wait()
		if r.gone(c) {
			t.Error("a call whose answer has begun was taken for a request that is not complete")
		}
	})
}

// TestAFrameThatIsTooLongHoldsNothing: gRPC does not read it. An HTTP/1 request has one, if it is read as HTTP/2.
func TestAFrameThatIsTooLongHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1<<20, Kind{HTTP2: true})
		_, c := r.connect(t, "192.0.2.1")
		err := c.Received([]byte("GET /metrics HTTP/1.1\r\nHost: sidecar:8081\r\n\r\n"))
		if err != nil || r.Full() || r.Stats().Bytes > 1<<16 {
			t.Errorf("%v, %+v after one request over HTTP/1", err, r.Stats())
		}
	})
}

func TestAddressesOfOnePeer(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1/32", "[::ffff:192.0.2.1]:5": "192.0.2.1/32",
		"[2001:db8::1:2]:5": "2001:db8::/64", "[fe80::1%eth0]:5": "fe80::/64",
	} {
		tcp := must.Get(net.ResolveTCPAddr("tcp", text))(t)
		if got := address(tcp).String(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if got := address(&net.UnixAddr{Name: "/x", Net: "unix"}); got.IsValid() {
		t.Errorf("a client of a Unix socket is %s", got)
	}
}
