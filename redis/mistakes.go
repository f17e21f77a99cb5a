package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// OfSentinel reports whether an error is the reply of a sentinel that was asked for the master.
func OfSentinel(err error) bool {
	var op *net.OpError
	var reply goredis.Error
	return errors.As(err, &op) && op.Op == "dial" && errors.As(op.Err, &reply)
}

// NoMaster is why sentinels name no master: they watch none of that name.
type NoMaster struct {
	Name    string
	Watched []string // names of those that they watch; none: that is not known
}

// Error states it.
func (e *NoMaster) Error() string {
	text := fmt.Sprintf("the sentinels watch no master of the name %q", e.Name)
	if len(e.Watched) > 0 {
		text += ", but " + strings.Join(e.Watched, ", ")
	}
	return text
}

// noMaster asks a sentinel that does not know the master which ones it watches.
func (s *sentinel) noMaster(ctx context.Context, one *goredis.SentinelClient) error {
	fault := &NoMaster{Name: s.client.cfg.Master}
	all, _ := one.Masters(ctx).Result() // without them the name alone is wrong
	for _, about := range all {
		fields, _ := about.([]any)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "name" {
				fault.Watched = append(fault.Watched, fmt.Sprint(fields[i+1]))
			}
		}
	}
	return fault
}

// User is the user that connections to the server log in as.
func (s *Server) User() string {
	user := s.client.cfg.Username
	if s.client.cfg.Credentials != nil {
		user, _ = s.client.cfg.Credentials()
	}
	return cmp.Or(user, "default")
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
