package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"

	"github.com/spillway-mesh/spillway/door/connlimit"
)

// Listener hands out connections of connlimit that gRPC reads without a buffer for each.
type Listener struct{ net.Listener }

// Accept returns the next connection.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &grpcConn{Conn: conn.(*connlimit.Conn)}
	c.raw, err = c.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("reach the socket of a connection: %w", err)
	}
	c.read = c.readNow
	return c, nil
}

// grpcConn takes a buffer only when there is something to read. gRPC does so by itself for connections that are not
// wrapped.
type grpcConn struct {
	*connlimit.Conn
	raw  syscall.RawConn
	read func(fd uintptr) bool // readNow: made once, because one per read would be an allocation

	size   int // of the buffer
	pool   mem.BufferPool
	buffer *[]byte // what was read, in its first n bytes; else nil
	n      int
	failed error
}

// readNow reads, and reports whether it has not to wait.
func (c *grpcConn) readNow(fd uintptr) bool {
	c.buffer = c.pool.Get(c.size)
	c.n, c.failed = syscall.Read(int(fd), *c.buffer)
	if c.failed != nil || c.n <= 0 {
		c.release()
	}
	return !errors.Is(c.failed, syscall.EAGAIN) && !errors.Is(c.failed, syscall.EINTR)
}

// release gives the buffer back.
func (c *grpcConn) release() {
	if c.buffer != nil {
		c.pool.Put(c.buffer)
		c.buffer = nil
	}
}

// ReadOnReady waits for bytes and reads them into a buffer of the pool. gRPC looks for this method. It reads in one
// goroutine.
func (c *grpcConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	err := c.Admit()
	if err != nil {
		return nil, 0, err
	}
	c.size, c.pool, c.buffer, c.n, c.failed = size, pool, nil, 0, nil
	err = c.raw.Read(c.read)
	if err == nil {
		err = c.failed
	}
	if err == nil && c.n <= 0 {
		err = io.EOF
	}
	if err == nil {
		err = c.Received((*c.buffer)[:c.n])
	}
	if err != nil {
		c.release()
		return nil, 0, err
	}
	read := c.buffer
	c.buffer = nil
	return read, c.n, nil
}

// Credentials are those whose connections connlimit counts once they are decrypted.
type Credentials struct {
	credentials.TransportCredentials
}

// ServerHandshake greets a client.
func (c Credentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	below, ok := conn.(*connlimit.Conn)
	if !ok {
		return secure, info, nil
	}
	return &decrypted{secure, below}, info, nil
}

// Clone returns a copy.
func (c Credentials) Clone() credentials.TransportCredentials {
	return Credentials{c.TransportCredentials.Clone()}
}

// decrypted is a connection with TLS as gRPC reads and writes it.
type decrypted struct {
	net.Conn
	below *connlimit.Conn
}

// Read reads what the client has sent.
func (d *decrypted) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if closed := d.below.Received(p[:n]); closed != nil {
		return 0, closed
	}
	return n, err
}

// Write writes to the client.
func (d *decrypted) Write(p []byte) (int, error) {
	n, err := d.Conn.Write(p)
	d.below.Sent(p[:n])
	return n, err
}

// traceKeys are the metadata of a call that are read.
var traceKeys = []string{
	"traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags",
}

// Trim lets go of the metadata of a call that are not read: gRPC keeps them for as long as the call lasts.
func Trim(ctx context.Context, info *tap.Info) (context.Context, error) {
	for key := range info.Header {
		if !slices.Contains(traceKeys, key) {
			delete(info.Header, key)
		}
	}
	return ctx, nil
}
