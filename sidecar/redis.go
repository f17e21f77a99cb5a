package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/settings"
	"github.com/spillway-mesh/spillway/store"
)

// kinds are the types of a store in the terms of package fleet.
var kinds = map[settings.Kind]fleet.Kind{
	settings.Single: fleet.Single, settings.Sentinel: fleet.Sentinel, settings.Cluster: fleet.Cluster, settings.Ring: fleet.Ring,
}

// openRedis makes the shared store. It does not wait for Redis to be there.
func (s *Sidecar) openRedis() (*store.Redis, error) {
	cfg := store.RedisConfig{
		Budget: s.cfg.Store.Budget, Patience: s.cfg.Store.Patience, DenialEntries: s.cfg.Store.DenialCache, DenialBytes: s.budget.denials,
		Leases: s.cfg.Store.Leases, Heartbeat: descriptors.HeartbeatKey(s.cfg.Store.KeyPrefix), Breaker: breakerConfig(s.cfg.Breaker),
		Caller: caller, OnError: s.observer.StoreFailed, OnPanic: s.observer.Survived,
		OnBreaker: s.observer.BreakerChanged, OnCall: s.observer.StoreCalled,
	}
	cfg.Breaker.Random = s.world.Random
	if cfg.DenialEntries == 0 {
		cfg.DenialEntries = -1
	}
	if s.tracer != nil {
		cfg.OnTrip = s.tracer.Trip
	}
	for i, named := range s.cfg.Redises() {
		servers, err := serversOf(named, s.cfg.RedisTLS, s.log, s.secrets.AddRecent)
		if err != nil {
			return nil, fmt.Errorf("set up Redis: %w", err)
		}
		servers.Dial = s.world.Dial
		if i == 0 {
			cfg.Servers = servers
			continue
		}
		cfg.PerSecond = &servers
	}
	shared := store.NewRedis(cfg)
	s.defers("redis", shared.Close)
	s.forget, s.ping, s.breaker, s.connected = shared.Forget, shared.Ping, shared.Breaker, shared.Ready
	s.telemetry.Redis(shared.Stats)
	s.shards = func() []store.ShardStats { return shared.Stats().Shards }
	s.serves = shared.Serve
	s.telemetry.Live(shared.Live, s.domains)
	return shared, nil
}

// breakerConfig is the settings in the terms of package breaker.
func breakerConfig(b settings.Breaker) breaker.Config {
	return breaker.Config{
		Consecutive: uint32(b.Failures), Ratio: b.Ratio, MinCalls: uint32(b.MinCalls), Window: b.Window,
		Open: b.Open, MaxOpen: b.Open * 3 / 2, Probes: uint32(b.Probes),
	}
}

// caller names the connection that a call came over. Those of a Unix socket have no names.
func caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil || p.Addr.Network() == "unix" {
		return ""
	}
	return p.Addr.String()
}

// RedisServers returns where the main Redis of the settings is, for another program that shares it with sidecars.
func RedisServers(cfg *settings.Config, log *slog.Logger) (fleet.Servers, error) {
	return serversOf(cfg.Redises()[0], cfg.RedisTLS, log, func(string) {})
}

// serversOf returns where the servers of a store are, in the terms of package fleet. hide gets each password that is read from a file.
func serversOf(r settings.NamedRedis, secure settings.RedisTLS, log *slog.Logger, hide func(secret string)) (fleet.Servers, error) {
	t, err := r.Target()
	if err != nil {
		return fleet.Servers{}, err
	}
	s := fleet.Servers{
		Kind: kinds[t.Kind], Network: t.Network(), Addresses: t.Addresses, Master: t.Master, DB: t.DB(),
		Streams: r.PoolSize, DialTimeout: r.Timeout,
	}
	if t.Secured() {
		s.TLS, err = redisTLS(secure, log)
		if err != nil {
			return s, err
		}
	}
	return s, addLogins(&s, r, t, log, hide)
}

// addLogins sets who logs in to the servers, and to the sentinels.
func addLogins(s *fleet.Servers, r settings.NamedRedis, t *settings.Target, log *slog.Logger, hide func(secret string)) error {
	servers, sentinels := r.LoginSources()
	server, sentinel := t.Logins()
	server, err := servers.Read(server)
	if err != nil {
		return err
	}
	s.Username, s.Password = server.User, server.Password
	if r.AuthFile != "" {
		s.Credentials = rotating(servers, server, log, hide)
	}
	if t.Kind != settings.Sentinel {
		return nil
	}
	sentinel, err = sentinels.Read(sentinel)
	if err != nil {
		return err
	}
	if sentinel != (settings.Login{}) {
		s.Sentinels = rotating(sentinels, sentinel, log, hide)
	}
	return nil
}

// rotating returns a function that reads the source each time, so that a file may change while the sidecar runs. While the file
// cannot be read, the function returns the last login that it read, at first the given one. hide gets each password before it is used.
func rotating(source settings.LoginSource, first settings.Login, log *slog.Logger, hide func(secret string)) func() (user, password string) {
	var last atomic.Pointer[settings.Login]
	last.Store(&first)
	hide(first.Password)
	return func() (user, password string) {
		now, err := source.Read(first)
		if err != nil {
			log.Warn("a password cannot be read; the last one stays", "error", err)
			now = *last.Load()
			return now.User, now.Password
		}
		hide(now.Password)
		last.Store(&now)
		return now.User, now.Password
	}
}

// whereRedis returns where counts are kept, for a line of the log.
func whereRedis(c *settings.Config) []any {
	args := []any{"budget", c.Store.Budget.String()}
	for i, r := range c.Redises() {
		at, err := r.Target()
		if err != nil {
			continue // the store would not have been opened
		}
		args = append(args, [...]string{"at", "per_second_at"}[i], at.String())
	}
	return args
}
