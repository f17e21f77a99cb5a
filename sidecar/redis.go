package sidecar

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/store"
)

// kinds are the types of a store in the terms of package redis.
var kinds = map[settings.Kind]redis.Kind{
	settings.Single: redis.Single, settings.Sentinel: redis.Sentinel, settings.Cluster: redis.Cluster,
	settings.Ring: redis.Ring,
}

// openRedis makes the shared store. It does not wait for Redis to be there.
func (s *Sidecar) openRedis() error {
	cfg := store.RedisConfig{
		Patience: s.cfg.Store.Patience, DenialEntries: s.cfg.Store.DenialCache, DenialBytes: s.counts.budget.denials,
		Leases: s.cfg.Store.Leases, Heartbeat: descriptors.HeartbeatKey(s.cfg.Store.KeyPrefix),
		OnError: s.reports.observer.StoreFailed,
		OnLate: func(part *limit.Request, err error) {
			s.counts.engine.Late(part.Fate, part.Charges, part.Decisions, err)
		},
	}
	if cfg.DenialEntries == 0 {
		cfg.DenialEntries = -1
	}
	if s.reports.tracer != nil {
		cfg.OnTrip = s.reports.tracer.Trip
	}
	clients, err := s.openClients()
	if err != nil {
		return err
	}
	cfg.Main = clients[0]
	if len(clients) > 1 {
		cfg.PerSecond = clients[1]
	}
	s.counts.redis = store.NewRedis(cfg)
	s.watchAbout(clients)
	return nil
}

// openClients begins to connect: to the Redis of all limits, and to that of limits by the second if there is one.
func (s *Sidecar) openClients() ([]*redis.Client, error) {
	var all []redis.Config
	for i, named := range s.cfg.Redises() {
		servers, err := serversOf(named, s.cfg.RedisTLS, s.reports.log, s.reports.secrets.AddRecent)
		if err != nil {
			return nil, fmt.Errorf("set up Redis: %w", err)
		}
		servers.Dial = s.world.Dial
		all = append(all, redis.Config{
			Servers: servers, Prefix: [...]string{"", perSecond}[i], Silence: s.cfg.Store.Silence,
			Breaker:   breakerConfig(s.cfg.Breaker),
			OnBreaker: s.reports.observer.BreakerChanged, OnPanic: s.reports.observer.Survived,
			OnCall: s.reports.observer.StoreCalled,
		})
	}
	var clients []*redis.Client
	for _, c := range all {
		clients = append(clients, redis.New(c))
	}
	return clients, nil
}

// perSecond begins the names of servers of REDIS_PERSECOND.
const perSecond = "per-second "

// breakerConfig is the settings in the terms of package breaker.
func breakerConfig(b settings.Breaker) breaker.Config {
	return breaker.Config{Failures: uint32(b.Failures), Open: b.Open, Probes: uint32(b.Probes)}
}

// RedisServers returns where the main Redis of the settings is, for another program that shares it with sidecars.
func RedisServers(cfg *settings.Config, log *slog.Logger) (redis.Servers, error) {
	return serversOf(cfg.Redises()[0], cfg.RedisTLS, log, func(string) {})
}

// serversOf returns where the servers of a store are, in the terms of package redis. hide gets each password that is
// read from a file.
func serversOf(r settings.NamedRedis, secure settings.RedisTLS, log *slog.Logger,
	hide func(secret string)) (redis.Servers, error) {
	t, err := r.Target()
	if err != nil {
		return redis.Servers{}, err
	}
	s := redis.Servers{
		Kind: kinds[t.Kind], Network: t.Network(), Addresses: t.Addresses, Master: t.Master, DB: t.DB(),
		PoolSize: r.PoolSize, DialTimeout: r.Timeout,
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
func addLogins(s *redis.Servers, r settings.NamedRedis, t *settings.Target, log *slog.Logger,
	hide func(secret string)) error {
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

// rotating returns a function that reads the source each time, so that a file may change while the sidecar runs. While
// the file cannot be read, the function returns the last login that it read, at first the given one. hide gets each
// password before it is used.
func rotating(source settings.LoginSource, first settings.Login, log *slog.Logger,
	hide func(secret string)) func() (user, password string) {
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
	args := []any{"patience", c.Store.Patience.String()}
	for i, r := range c.Redises() {
		at, err := r.Target()
		if err != nil {
			continue // the store would not have been opened
		}
		args = append(args, [...]string{"at", "per_second_at"}[i], at.String())
	}
	return args
}
