package store

import (
	"context"
	"net"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// newSentinel sets up the master that the sentinels name. The library asks them for it with each new connection, and drops
// the connections to the old one when they tell of a new one.
func newSentinel(s Servers, prefix string, g guards) *solo {
	o := &solo{node: node{name: prefix + s.Master, guard: g.guard(prefix + s.Master)}}
	options := s.options("")
	last := &lastMaster{sentinels: s.Addresses, dial: redis.NewDialer(options)}
	o.dialer = newDialer(last.connect, o.guard.Nudge)
	failover := &redis.FailoverOptions{
		MasterName: s.Master, SentinelAddrs: slices.Clone(s.Addresses), Dialer: o.dialer.connect,
		Username: options.Username, Password: options.Password, CredentialsProvider: options.CredentialsProvider, DB: options.DB, TLSConfig: options.TLSConfig,
		MaxRetries: options.MaxRetries, ContextTimeoutEnabled: true,
		DialTimeout: options.DialTimeout, DialerRetries: options.DialerRetries,
		ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout,
		PoolSize: options.PoolSize, MinIdleConns: options.MinIdleConns, PipelinePoolSize: options.PipelinePoolSize,
		ConnMaxIdleTime: options.ConnMaxIdleTime, ConnMaxLifetime: options.ConnMaxLifetime, ConnMaxLifetimeJitter: options.ConnMaxLifetimeJitter,
		DisableIdentity: true,
	}
	if s.Sentinels != nil {
		failover.SentinelUsername, failover.SentinelPassword = s.Sentinels()
	}
	client := redis.NewFailoverClient(failover)
	client.AddHook(last)
	o.start(client, s)
	return o
}

// lastMaster remembers the master, so that new connections can be made while no sentinel answers: it is the best that is
// known, and a server that is master no more says so.
type lastMaster struct {
	sentinels []string
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	address   atomic.Pointer[string]
}

// connect dials a sentinel or the master.
func (l *lastMaster) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, address)
	if err == nil && !slices.Contains(l.sentinels, address) {
		l.address.Store(&address)
	}
	return conn, err
}

// DialHook falls back to the last master, and marks what fails here as a dial, whoever failed.
func (l *lastMaster) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		if err == nil {
			return conn, nil
		}
		if last := l.address.Load(); last != nil && ctx.Err() == nil {
			conn, again := l.dial(ctx, network, *last)
			if again == nil {
				return conn, nil
			}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
}

// ProcessHook changes nothing.
func (*lastMaster) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (*lastMaster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
