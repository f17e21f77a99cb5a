package simulation

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection. Bytes have an instant of arrival, in virtual time. A write never waits. No lock is
// held while time passes, because a bubble's clock moves only while all its goroutines wait on channels and timers.
type conn struct {
	number int
	link   *link
	way    *way // of what arrives here
	peer   *conn
	name   addr

	note   chan struct{} // something has changed; holds one
	asking bool          // the next command is for slots that are on their way; guarded by the server's turn

	mu       sync.Mutex // guards all below
	in       []parcel   // in the order of arrival
	eof      bool       // the other end was closed
	failed   error
	closed   bool
	deadline time.Time
}

// parcel is what one write brings.
type parcel struct {
	at   time.Time // when it arrives, if nothing is cut
	data []byte
}

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// wake wakes the reader.
func (c *conn) wake() {
	select {
	case c.note <- struct{}{}:
	default:
	}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		n, until, err := c.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if until.IsZero() {
			<-c.note
			continue
		}
		wait := time.NewTimer(time.Until(until))
		select {
		case <-c.note:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// take reads what has arrived. Where that is nothing, it returns when to look again, or zero: after the next note.
func (c *conn) take(b []byte) (n int, until time.Time, err error) {
	cut := c.way.cut()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.closed:
		return 0, until, net.ErrClosed
	case c.failed != nil:
		return 0, until, c.failed
	case !cut && len(c.in) > 0 && !c.in[0].at.After(now):
		return c.copyLocked(b, now), until, nil
	case !cut && len(c.in) > 0:
		until = c.in[0].at
	case !cut && c.eof:
		return 0, until, errEOF
	}
	if !c.deadline.IsZero() {
		if !c.deadline.After(now) {
			return 0, until, os.ErrDeadlineExceeded
		}
		if until.IsZero() || c.deadline.Before(until) {
			until = c.deadline
		}
	}
	return 0, until, nil
}

func (c *conn) copyLocked(b []byte, now time.Time) (n int) {
	for len(c.in) > 0 && n < len(b) && !c.in[0].at.After(now) {
		some := copy(b[n:], c.in[0].data)
		n += some
		c.in[0].data = c.in[0].data[some:]
		if len(c.in[0].data) == 0 {
			c.in = c.in[1:]
		}
	}
	return n
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	closed, failed := c.closed, c.failed
	c.mu.Unlock()
	switch {
	case closed:
		return 0, net.ErrClosed
	case failed != nil:
		return 0, failed
	}
	if len(b) > 0 {
		c.peer.arrive(append([]byte(nil), b...))
	}
	return len(b), nil
}

// arrive puts bytes on the way to this end. Those of one connection do not overtake each other.
func (c *conn) arrive(data []byte) {
	at := time.Now().Add(c.way.delay())
	c.mu.Lock()
	if last := len(c.in); last > 0 && c.in[last-1].at.After(at) {
		at = c.in[last-1].at
	}
	c.in = append(c.in, parcel{at, data})
	c.mu.Unlock()
	c.wake()
}

// Close ends both directions: what is on the way to the other end still arrives.
func (c *conn) Close() error {
	c.mu.Lock()
	was := c.closed
	c.closed, c.in = true, nil
	c.mu.Unlock()
	if was {
		return net.ErrClosed
	}
	c.link.forget(c)
	c.wake()
	c.peer.mu.Lock()
	c.peer.eof = true
	c.peer.mu.Unlock()
	c.peer.wake()
	return nil
}

// reset ends the connection at both ends, with all that is on the way.
func (c *conn) reset() {
	for _, end := range []*conn{c, c.peer} {
		end.mu.Lock()
		if end.failed == nil {
			end.failed = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		}
		end.in = nil
		end.mu.Unlock()
		end.wake()
	}
}

func (c *conn) LocalAddr() net.Addr  { return c.name }
func (c *conn) RemoteAddr() net.Addr { return c.peer.name }

func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline does nothing: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
