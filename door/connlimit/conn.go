package connlimit

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is a connection of TCP or of a Unix socket.
type socket interface {
	net.Conn
	syscall.Conn
}

// Conn is a connection within a limit.
type Conn struct {
	socket
	limit  *Limit
	at     *listener
	peer   *peer
	made   int64        // when it was accepted
	held   atomic.Int64 // bytes
	part   atomic.Int64 // of them, those of requests that are not complete
	used   atomic.Int64 // when it last got an answer; 0: never
	silent bool         // it speaks HTTP/2 and has not greeted; guarded by Limit.mu
	remote net.Addr

	mu       sync.Mutex // guards the rest
	closed   bool
	calls    streams // of HTTP/2
	received int64   // bytes of HTTP/1 since the last answer
	extra    int64   // bytes that Hold noted
}

// Addr is the address of a peer, which leads to its connection.
type Addr struct {
	net.Addr
	conn *Conn
}

// register counts a connection.
func (l *Limit) register(inner net.Conn, at *listener) *Conn {
	c := &Conn{socket: inner.(socket), limit: l, at: at, made: l.now(), silent: at.kind.HTTP2}
	c.remote = &Addr{inner.RemoteAddr(), c}
	c.calls.in.rest = preface
	key := address(inner.RemoteAddr())
	l.mu.Lock()
	c.peer = l.peers[key]
	if c.peer == nil {
		c.peer = new(peer)
		l.peers[key] = c.peer
	}
	c.peer.conns++
	at.open++
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count()
	return c
}

// RemoteAddr is the peer's address: an Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

func (c *Conn) from() string { return c.remote.String() }

// before reports whether the connection makes room before another one: because it holds a large part, because it never
// got an answer, or because it got its last one earlier.
func (c *Conn) before(other *Conn, large int64) bool {
	mine, its := c.held.Load(), other.held.Load()
	if mine != its && max(mine, its) > large {
		return mine > its
	}
	used, itsUsed := c.used.Load(), other.used.Load()
	if used != itsUsed {
		return used < itsUsed
	}
	return c.made < other.made
}

// Read reads from the peer. While the budget is full, a peer that holds more than a little waits for its turn.
func (c *Conn) Read(p []byte) (int, error) {
	err := c.Admit()
	if err != nil {
		return 0, err
	}
	n, err := c.socket.Read(p)
	if !c.at.kind.HTTP2 || !c.at.kind.TLS {
		if closed := c.Received(p[:n]); closed != nil {
			return 0, closed
		}
	}
	return n, err
}

// Write writes to the peer.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.socket.Write(p)
	if !c.at.kind.HTTP2 || !c.at.kind.TLS {
		c.Sent(p[:n])
	}
	return n, err
}

// Received notes what the peer has sent. It fails where the connection has to go for that: nothing of it is to be read.
func (c *Conn) Received(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	now := c.limit.now()
	c.mu.Lock()
	if c.at.kind.HTTP2 {
		c.calls.received(p, now)
	} else {
		c.received += int64(len(p))
	}
	c.count()
	excess := c.calls.tooMany()
	c.mu.Unlock()
	if excess {
		c.limit.shut(c, Room)
	}
	c.limit.relieve()
	if c.held.Load() == 0 { // it is closed: an open one holds something
		return net.ErrClosed
	}
	return nil
}

// Sent notes what was sent to the peer.
func (c *Conn) Sent(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := len(p) > 0
	if c.at.kind.HTTP2 {
		answered = c.calls.sent(p)
	} else if answered {
		c.received = 0
	}
	if answered {
		c.used.Store(c.limit.now())
	}
	c.count()
}

// Hold notes bytes that wait to be sent to the peer at addr; below 0 they are given back.
func Hold(addr net.Addr, bytes int) {
	at, ok := addr.(*Addr)
	if !ok {
		return
	}
	at.conn.mu.Lock()
	at.conn.extra += int64(bytes)
	at.conn.count()
	at.conn.mu.Unlock()
	if bytes > 0 {
		at.conn.limit.relieve()
	}
}

// count brings what the connection holds up to date. The caller has locked it.
func (c *Conn) count() {
	var now, part int64
	if !c.closed {
		request := 2 * min(c.received, c.at.kind.Whole) // a reader that grows holds its old bytes and its new ones
		part = c.calls.unfinished + request
		now = c.at.kind.Bytes + c.calls.held + request + c.extra
	}
	c.part.Store(part)
	more := now - c.held.Swap(now)
	if more == 0 {
		return
	}
	c.peer.held.Add(more)
	c.limit.held.Add(more)
	if more < 0 {
		c.limit.wake(c)
	}
}

// oldest is when the oldest request began that is not complete. The server of HTTP/1 has timeouts of its own.
func (c *Conn) oldest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls.oldest()
}

// SetDeadline is called by gRPC with the time that a client has for its greeting, and with none when it has greeted.
func (c *Conn) SetDeadline(at time.Time) error {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if at.IsZero() {
		c.silent = false
	} else if by := c.limit.greetBy; !by.IsZero() && by.Before(at) {
		at = by
	}
	return c.socket.SetDeadline(at)
}

// Close ends the connection and gives back what it holds.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	c.mu.Unlock()
	err := c.socket.Close()
	c.limit.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count()
	return err
}

// remove takes a connection out of the count.
func (l *Limit) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.at.open--
	c.peer.conns--
	if c.peer.conns == 0 {
		delete(l.peers, address(c.remote))
	}
}
