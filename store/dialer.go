package store

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer connects for go-redis, which dials in the background and does not wait for that when it is closed.
type dialer struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	back   func() // called when a dial succeeds after one failed
	failed atomic.Bool
	closed context.Context
	cancel context.CancelFunc
	dials  errands  // in progress
	lines  lines    // open
	spared []string // addresses whose connections are not culled: those to sentinels are silent for long
}

// keepAlive finds out within a minute that the other side of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// newDialer dials as the options say. It calls back when the server can be reached again. The library's own dialer would finish a
// handshake of TLS that nobody waits for any more.
func newDialer(o *redis.Options, back func()) *dialer {
	plain := &net.Dialer{Timeout: o.DialTimeout, KeepAliveConfig: keepAlive}
	d := &dialer{dial: plain.DialContext, back: back}
	if o.TLSConfig != nil {
		secure := &tls.Dialer{NetDialer: plain, Config: o.TLSConfig}
		d.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := secure.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return tlsConn{conn.(*tls.Conn)}, nil
		}
	}
	d.closed, d.cancel = context.WithCancel(context.Background())
	return d
}

// tlsConn is a connection whose farewell may get lost: that the other side is gone already is no reason why the store could not be closed.
type tlsConn struct{ *tls.Conn }

// Close closes it, and tells the other side if it can.
func (c tlsConn) Close() error {
	_ = c.Conn.Close()
	return nil
}

// connect dials until the context or the dialer ends.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if !d.dials.begin() {
		return nil, net.ErrClosed
	}
	defer d.dials.done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(d.closed, cancel)
	defer stop()
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		d.failed.Store(true)
		// A failed handshake of TLS does not say by itself that it happened while dialling.
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if !slices.Contains(d.spared, address) {
		conn, err = d.lines.open(conn)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
	}
	if d.failed.CompareAndSwap(true, false) {
		d.back()
	}
	return conn, nil
}

// cull closes connections that were silent while the server was away.
func (d *dialer) cull() { d.lines.cull(time.Now()) }

// hangUp closes the connections that nobody waits on.
func (d *dialer) hangUp() { d.lines.hangUp() }

// stop ends all dials and waits for them.
func (d *dialer) stop() {
	d.cancel()
	d.dials.stop()
}
