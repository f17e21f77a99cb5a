package sidecar

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/telemetry"
)

const (
	connectionBytes  = 20 << 10 // what a connection takes that does nothing, measured and rounded up
	leastConnections = 256      // that the smallest machine has
	refusalsLogged   = 10 * time.Second
)

// connections bounds how many connections clients have at once over gRPC, on the port and the socket together. Probes over HTTP are not
// among them. And it keeps those that have not greeted yet from holding up the end of the sidecar.
type connections struct {
	most    int64
	log     *slog.Logger
	open    atomic.Int64
	refused atomic.Int64
	logged  atomic.Int64 // when a refusal was last logged, in ns since the epoch

	mu      sync.Mutex // guards the rest
	silent  map[*countedConn]struct{}
	greetBy time.Time // when those end that have not greeted; zero until the sidecar ends
}

func newConnections(bytes int64, log *slog.Logger) *connections {
	return &connections{most: max(leastConnections, bytes/connectionBytes), log: log, silent: make(map[*countedConn]struct{})}
}

// hurry ends the connections that do not greet within a time, also those still to come. gRPC tells no client to go elsewhere before each
// connection has greeted or ended.
func (c *connections) hurry(within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greetBy = time.Now().Add(within)
	for conn := range c.silent {
		_ = conn.socket.SetDeadline(c.greetBy) // it fails on one that is closed
	}
}

// stats is how many there are, and how many were refused.
func (c *connections) stats() telemetry.ConnectionStats {
	return telemetry.ConnectionStats{Open: c.open.Load(), Most: c.most, Refused: c.refused.Load()}
}

// bound returns a listener that closes connections beyond the bound as soon as it has accepted them: their clients learn of it at once,
// where a backlog would let them wait.
func (c *connections) bound(l net.Listener) net.Listener {
	if l == nil {
		return nil
	}
	return &boundListener{l, c}
}

type boundListener struct {
	net.Listener
	all *connections
}

// Accept returns the next connection that there is room for.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.all.open.Add(1) <= l.all.most {
			return l.all.counted(conn), nil
		}
		l.all.open.Add(-1)
		l.all.refuse(conn)
	}
}

// refuse closes a connection, and says so now and then.
func (c *connections) refuse(conn net.Conn) {
	_ = conn.Close()
	c.refused.Add(1)
	now, last := time.Now().UnixNano(), c.logged.Load()
	if now-last >= int64(refusalsLogged) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("connections refused: there are too many; more memory allows more", "connections", c.most, "refused", c.refused.Load())
	}
}

// counted returns a connection that leaves the count when it is closed.
func (c *connections) counted(conn net.Conn) net.Conn {
	counted := &countedConn{socket: conn.(socket), all: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent[counted] = struct{}{}
	return counted
}

// socket is a connection of TCP or of a Unix socket. gRPC reads one without a buffer of its own, because it can ask the kernel.
type socket interface {
	net.Conn
	syscall.Conn
}

type countedConn struct {
	socket
	all  *connections
	once sync.Once
}

// SetDeadline is called by gRPC with the time that a client has for its greeting, and with none when it has greeted.
func (c *countedConn) SetDeadline(at time.Time) error {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if at.IsZero() {
		delete(c.all.silent, c)
	} else if by := c.all.greetBy; !by.IsZero() && by.Before(at) {
		at = by
	}
	return c.socket.SetDeadline(at)
}

// Close ends the connection and makes room for another.
func (c *countedConn) Close() error {
	c.once.Do(c.leave)
	return c.socket.Close()
}

func (c *countedConn) leave() {
	c.all.open.Add(-1)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	delete(c.all.silent, c)
}
