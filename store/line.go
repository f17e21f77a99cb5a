package store

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// silentFor is how long a connection was of no use when it is let go after an outage: it may have died in it without a word, and the
// next call would wait for it in vain. Those that helped to end the outage have just spoken.
const silentFor = 500 * time.Millisecond

// tooMany is how a server turns a connection away, before it is asked anything. The library takes that for the answer to its greeting
// by a server too old for it, goes on, and finds the connection closed.
var tooMany = []byte("-ERR max number of clients")

var errClients = errors.New("the server takes no more connections")

// line is a connection that knows when it was last of use.
type line struct {
	net.Conn
	used   atomic.Int64 // unix ns when it was made, or something was written or read
	spoke  atomic.Bool  // the server has said something
	asked  atomic.Bool  // the server owes an answer
	closed atomic.Bool
	lines  *lines
}

// Read notes that the server lives, unless it turns the connection away. What it says then may get lost in a reset.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n == 0 {
		if err != nil && !l.spoke.Load() && !isTimeout(err) {
			l.lines.mute.Store(true)
		}
		return n, err
	}
	if !l.spoke.Swap(true) && bytes.HasPrefix(b[:n], tooMany) {
		return 0, errClients
	}
	l.used.Store(time.Now().UnixNano())
	l.asked.Store(false)
	if l.lines.mute.Load() {
		l.lines.mute.Store(false)
	}
	return n, err
}

// Write notes that somebody waits for an answer.
func (l *line) Write(b []byte) (int, error) {
	l.used.Store(time.Now().UnixNano())
	l.asked.Store(true)
	return l.Conn.Write(b)
}

// Close forgets it. The library closes what was culled once more.
func (l *line) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.lines.remove(l)
	return l.Conn.Close()
}

// socketLine is a line that is a socket, which the library looks at to see whether it was closed.
type socketLine struct{ *line }

// SyscallConn is the socket.
func (l socketLine) SyscallConn() (syscall.RawConn, error) {
	return l.Conn.(syscall.Conn).SyscallConn()
}

// tlsLine is a line with a socket below TLS. The library must not look at that by itself: it would take the tickets that a server sends
// after the handshake for an answer to nobody, and wait for more of it.
type tlsLine struct {
	*line
	socket syscall.RawConn
}

// SyscallConn fails when the connection was closed, by whichever side. Otherwise there is nothing to see.
func (l tlsLine) SyscallConn() (syscall.RawConn, error) {
	if l.closed.Load() || hungUp(l.socket) {
		return nil, net.ErrClosed
	}
	return calm{}, nil
}

// calm is a socket on which nothing happens.
type calm struct{}

// Control does nothing.
func (calm) Control(func(uintptr)) error { return nil }

// Read reads nothing.
func (calm) Read(func(uintptr) bool) error { return nil }

// Write writes nothing.
func (calm) Write(func(uintptr) bool) error { return nil }

// lines are the open connections of a dialer.
type lines struct {
	mute atomic.Bool // the last one to end or to speak ended before it spoke
	mu   sync.Mutex  // guards all
	all  map[*line]struct{}
}

// wordWithin is how long a server has to turn a connection away that is not used yet, where the last one was closed in silence.
const wordWithin = 2 * time.Millisecond

// open makes a line of a connection, unless the server turns it away.
func (s *lines) open(conn net.Conn) (net.Conn, error) {
	if _, ok := conn.(syscall.Conn); ok && s.mute.Load() && turnedAway(conn) {
		return nil, errors.Join(errClients, conn.Close())
	}
	return s.add(conn), nil
}

// turnedAway listens for a moment.
func turnedAway(conn net.Conn) bool {
	err := conn.SetReadDeadline(time.Now().Add(wordWithin))
	if err != nil {
		return false
	}
	var word [64]byte
	n, _ := conn.Read(word[:])
	return bytes.HasPrefix(word[:n], tooMany) || conn.SetReadDeadline(time.Time{}) != nil
}

// add makes a line of a connection.
func (s *lines) add(conn net.Conn) net.Conn {
	l := &line{Conn: conn, lines: s}
	l.used.Store(time.Now().UnixNano())
	s.mu.Lock()
	if s.all == nil {
		s.all = map[*line]struct{}{}
	}
	s.all[l] = struct{}{}
	s.mu.Unlock()
	switch c := conn.(type) {
	case syscall.Conn:
		return socketLine{l}
	case tlsConn:
		below, ok := c.NetConn().(syscall.Conn)
		if !ok {
			return l
		}
		socket, err := below.SyscallConn()
		if err != nil {
			return l
		}
		return tlsLine{l, socket}
	}
	return l
}

func (s *lines) remove(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, l)
}

// cull closes the connections that have been silent.
func (s *lines) cull(now time.Time) {
	s.end(func(l *line) bool { return now.UnixNano()-l.used.Load() >= int64(silentFor) })
}

// hangUp closes the connections that nobody waits on.
func (s *lines) hangUp() {
	s.end(func(l *line) bool { return !l.asked.Load() })
}

// end closes connections. The library finds out when it takes one of them out of its pool.
func (s *lines) end(which func(l *line) bool) {
	s.mu.Lock()
	var some []*line
	for l := range s.all {
		if which(l) {
			some = append(some, l)
		}
	}
	s.mu.Unlock()
	for _, l := range some {
		_ = l.Close() // nobody waits for it
	}
}
