package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// keepAlive finds out within a minute that the other side of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// options are those of connections to an address that wait for so long, and of which there are so many. Nothing is
// sent twice, and nothing is asked but what we ask.
func (s *Servers) options(address string, within time.Duration, size int) *goredis.Options {
	return &goredis.Options{
		Dialer: func(ctx context.Context, _, at string) (net.Conn, error) { return new(conn).dial(ctx, s, at) },
		Addr:   address, Network: s.Network, DB: s.DB,
		Username: s.Username, Password: s.Password, CredentialsProvider: s.Credentials,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: s.DialTimeout, ContextTimeoutEnabled: true,
		ReadTimeout: within, WriteTimeout: within, PoolTimeout: within, PoolSize: size, PipelinePoolSize: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// options are those of connections to the server.
func (s *Server) options(within time.Duration, size int) *goredis.Options {
	o := s.client.cfg.options(s.address, within, size)
	o.Dialer = s.connect
	return o
}

// connect makes a connection to where the server is now.
func (s *Server) connect(ctx context.Context, _, address string) (net.Conn, error) {
	c := &conn{server: s, epoch: s.epoch.Load()}
	if s.client.sentinel != nil {
		master, err := s.client.sentinel.address(ctx)
		if err != nil {
			return nil, err
		}
		address = master
	}
	return c.dial(ctx, &s.client.cfg.Servers, address)
}

// conn is a connection that ends where a reply announces too much, and that is not used again after its server was
// left.
type conn struct {
	net.Conn
	server  *Server // nil: it is not one of a server
	epoch   int64   // of the server when it was dialled
	greeted bool    // something was read
	replies announced
	closed  atomic.Bool
}

// dial makes the connection, with TLS if the servers want it. An error names the dial as its cause, also where a
// handshake of TLS failed.
func (c *conn) dial(ctx context.Context, s *Servers, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: s.DialTimeout, KeepAliveConfig: keepAlive}
	dial := plain.DialContext
	switch {
	case s.Dial != nil:
		dial = s.Dial
	case s.TLS != nil:
		dial = (&tls.Dialer{NetDialer: plain, Config: s.TLS()}).DialContext
	}
	raw, err := dial(ctx, s.Network, address)
	if err != nil {
		return nil, dialError(err)
	}
	c.Conn = raw
	if c.server != nil {
		c.server.client.opened.Add(1)
	}
	return c, nil
}

func dialError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return err
	}
	return &net.OpError{Op: "dial", Net: "redis", Err: err}
}

var fullServer = []byte("-ERR max number of clients")

// Read reads. A server that takes no more connections replies that to the first command.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.greeted && bytes.HasPrefix(b[:n], fullServer) {
		return 0, errClients
	}
	c.greeted = c.greeted || n > 0
	if good := c.replies.check(b[:n]); good < n {
		return good, errAnnounced
	}
	return n, err
}

// Close closes the connection.
func (c *conn) Close() error {
	if c.server != nil && !c.closed.Swap(true) {
		c.server.client.ended.Add(1)
	}
	return c.Conn.Close()
}

// SyscallConn is what go-redis looks at before it uses a connection again. One that leads to a former master fails
// there.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.server != nil && c.epoch != c.server.epoch.Load() {
		return nil, errFormer
	}
	if below, ok := c.Conn.(syscall.Conn); ok {
		return below.SyscallConn()
	}
	return blind{}, nil
}

// blind is the socket below TLS, whose bytes show nothing.
type blind struct{}

func (blind) Control(func(uintptr)) error    { return nil }
func (blind) Read(func(uintptr) bool) error  { return nil }
func (blind) Write(func(uintptr) bool) error { return nil }
