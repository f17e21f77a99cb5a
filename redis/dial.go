package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const answerWithin = 500 * time.Millisecond // for a server to answer who is the master, or who holds which slot

// keepAlive finds out within a minute that the other side of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// connect dials an address, with TLS if the servers want it. An error names the dial as its cause, also where a
// handshake of TLS failed.
func (s *Servers) connect(ctx context.Context, address string) (*conn, error) {
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
	return &conn{Conn: raw}, nil
}

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "redis", Err: err} }

// dialer makes a connection to where a server is now.
type dialer func(ctx context.Context) (*conn, error)

// options are those of connections that wait for so long, and of which there are so many. Nothing is sent twice, and
// nothing is asked but what we ask.
func (s *Servers) options(within time.Duration, size int, dial dialer) *goredis.Options {
	return &goredis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err // a nil *conn would be no nil net.Conn
			}
			return c, nil
		},
		Network: s.Network, Username: s.Username, Password: s.Password, CredentialsProvider: s.Credentials, DB: s.DB,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: s.DialTimeout, ContextTimeoutEnabled: true,
		ReadTimeout: within, WriteTimeout: within, PoolTimeout: within, PoolSize: size, PipelinePoolSize: -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// lone are the options of one connection for what is asked beside the requests: who is the master, who holds which
// slot.
func (s *Servers) lone(address string) *goredis.Options {
	return s.options(answerWithin, 1, func(ctx context.Context) (*conn, error) { return s.connect(ctx, address) })
}

// pools makes the connections for batches, of which a spare one is ready at once, and those for cold commands.
func (s *Server) pools() (hot, cold *goredis.Client) {
	servers := &s.client.cfg.Servers
	often := servers.options(s.client.cfg.Silence, servers.PoolSize, s.connect)
	often.MinIdleConns, often.MaxIdleConns = 2, 4
	rarely := servers.options(coldAtMost, servers.PoolSize, s.connect)
	rarely.MaxIdleConns = 2
	return goredis.NewClient(often), goredis.NewClient(rarely)
}

// connect makes a connection that is counted.
func (s *Server) connect(ctx context.Context) (*conn, error) {
	epoch := s.epoch.Load()
	c, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	s.client.opened.Add(1)
	c.server, c.epoch = s, epoch
	return c, nil
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

var fullServer = []byte("-ERR max number of clients")

// Read reads. A server that takes no more connections replies that to whatever it is asked first.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.greeted && bytes.HasPrefix(b[:n], fullServer) {
		return 0, errClients
	}
	c.greeted = c.greeted || n > 0
	if fault := c.replies.check(b[:n]); fault != nil {
		return 0, fault
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
