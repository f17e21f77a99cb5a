package fleet

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// keepAlive finds out within a minute that the other side of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// dialer connects to an address, with TLS if the servers ask for it. An error names the dial as its cause, also where a handshake of
// TLS failed.
func (s *Servers) dialer() func(ctx context.Context, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: s.DialTimeout, KeepAliveConfig: keepAlive}
	dial := plain.DialContext
	switch {
	case s.Dial != nil:
		dial = s.Dial
	case s.TLS != nil:
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			secure := &tls.Dialer{NetDialer: plain, Config: s.TLS()}
			return secure.DialContext(ctx, network, address)
		}
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, s.Network, address)
		if err != nil {
			return nil, dialError(s.Network, err)
		}
		return conn, nil
	}
}

func dialError(network string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Err: err}
}
