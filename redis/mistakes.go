package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"
)

// OfSentinel reports whether an error is the reply of a sentinel that was asked for the master.
func OfSentinel(err error) bool {
	var op *net.OpError
	var reply goredis.Error
	return errors.As(err, &op) && op.Op == "dial" && errors.As(op.Err, &reply)
}

// OfHandshake reports whether a server took a connection, and TLS did not begin on it.
func OfHandshake(err error) bool {
	var op *net.OpError
	var reply goredis.Error
	return errors.As(err, &op) && op.Op == "dial" && op.Net == "redis" && !errors.As(op.Err, &reply)
}

// SpeaksTLS reports whether the server completes a handshake of TLS. Nothing is sent on that connection.
func (s *Server) SpeaksTLS(ctx context.Context) bool {
	dialer := &net.Dialer{Timeout: s.client.cfg.DialTimeout}
	secure := &tls.Dialer{NetDialer: dialer, Config: &tls.Config{InsecureSkipVerify: true}} // nothing is trusted to it
	ctx, cancel := context.WithTimeout(ctx, 2*s.client.cfg.DialTimeout)
	defer cancel()
	raw, err := secure.DialContext(ctx, s.client.cfg.Network, s.address)
	if err != nil {
		return false
	}
	return raw.Close() == nil
}
