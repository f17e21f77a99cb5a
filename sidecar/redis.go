package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/store"
)

// kinds are the values of REDIS_TYPE, which may be written in any case.
var kinds = map[string]fleet.Kind{
	"single": fleet.Single, "sentinel": fleet.Sentinel, "cluster": fleet.Cluster, "ring": fleet.Ring,
}

// openRedis makes the shared store. It does not wait for Redis to be there.
func (s *Sidecar) openRedis() (*store.Redis, error) {
	cfg := store.RedisConfig{
		Budget: s.cfg.Store.Budget, Patience: s.cfg.Store.Patience, DenialEntries: s.cfg.Store.DenialCache, DenialBytes: s.budget.denials,
		Heartbeat: descriptors.HeartbeatKey(s.cfg.Store.KeyPrefix), Breaker: s.cfg.Breaker.config(),
		Caller: caller, OnError: s.observer.StoreFailed, OnBreaker: s.observer.BreakerChanged, OnCall: s.observer.StoreCalled,
	}
	if cfg.DenialEntries == 0 {
		cfg.DenialEntries = -1
	}
	if s.tracer != nil {
		cfg.OnTrip = s.tracer.Trip
	}
	for i, named := range s.cfg.redises() {
		servers, err := named.servers(s.cfg.RedisTLS, s.log, s.secrets.AddRecent)
		if err != nil {
			return nil, fmt.Errorf("set up Redis: %w", err)
		}
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
	s.serves = shared.Serve
	s.telemetry.Live(shared.Live, s.domains)
	return shared, nil
}

// config is the settings in the terms of package breaker.
func (b Breaker) config() breaker.Config {
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

// namedRedis is a Redis with the beginning of its variables' names.
type namedRedis struct {
	*Redis
	prefix string
}

// redises are the stores that are asked for: the one of all limits, then the one of limits by the second.
func (c *Config) redises() []namedRedis {
	all := []namedRedis{{&c.Redis, "REDIS_"}}
	if c.Store.PerSecond {
		all = append(all, namedRedis{&c.PerSecond, "REDIS_PERSECOND_"})
	}
	return all
}

// validate says what is wrong with the settings.
func (r namedRedis) validate(p *problems) {
	p.unless(one(r.SocketType, "", "tcp", "unix"), r.prefix+"SOCKET_TYPE", r.SocketType, "tcp or unix")
	p.unless(r.PoolSize >= 0 && r.PoolSize <= 10000, r.prefix+"POOL_SIZE", r.PoolSize, "a number from 1 to 10000")
	p.unless(r.Timeout >= 0, r.prefix+"TIMEOUT", r.Timeout, "a duration above 0")
	_, known := kinds[strings.ToLower(r.Type)]
	p.unless(known, r.prefix+"TYPE", r.Type, "one of single, sentinel, cluster, ring")
	if !known {
		return
	}
	_, err := r.target()
	p.add(err)
	_, err = r.auth().login(login{})
	p.add(err)
	_, err = r.sentinelAuth().login(login{})
	p.add(err)
}

// target reads the URL.
func (r namedRedis) target() (*target, error) {
	if r.URL == "" {
		return &target{}, nil
	}
	kind := kinds[strings.ToLower(r.Type)]
	if kind == fleet.Single && isList(r.URL) {
		return nil, fmt.Errorf("%sURL: a list of servers needs %[1]sTYPE: sentinel (the master's name comes first), cluster or ring", r.prefix)
	}
	t, err := parseTarget(kind, r.URL, r.SocketType)
	if err != nil {
		return nil, fmt.Errorf("%sURL: %w", r.prefix, err)
	}
	if r.TLS {
		t.said.scheme = "rediss"
	}
	return t, nil
}

// servers is where the store's servers are, in the words of package store. hide gets the passwords that files turn out to hold.
func (r namedRedis) servers(secure RedisTLS, log *slog.Logger, hide func(secret string)) (fleet.Servers, error) {
	t, err := r.target()
	if err != nil {
		return fleet.Servers{}, err
	}
	s := fleet.Servers{
		Kind: t.kind, Network: t.said.network, Addresses: t.addresses, Master: t.master, DB: t.db(),
		Streams: r.PoolSize, DialTimeout: r.Timeout,
	}
	if t.said.scheme == "rediss" {
		s.TLS, err = secure.rotating(log)
		if err != nil {
			return s, err
		}
	}
	return s, r.addLogins(&s, t, log, hide)
}

// addLogins says who the store is to the servers, and to the sentinels.
func (r namedRedis) addLogins(s *fleet.Servers, t *target, log *slog.Logger, hide func(secret string)) error {
	server, sentinel := t.logins()
	server, err := r.auth().login(server)
	if err != nil {
		return err
	}
	s.Username, s.Password = server.user, server.password
	if r.AuthFile != "" {
		s.Credentials = r.auth().rotating(server, log, hide)
	}
	if t.kind != fleet.Sentinel {
		return nil
	}
	sentinel, err = r.sentinelAuth().login(sentinel)
	if err != nil {
		return err
	}
	if sentinel != (login{}) {
		s.Sentinels = r.sentinelAuth().rotating(sentinel, log, hide)
	}
	return nil
}

func (r namedRedis) auth() loginSource {
	return loginSource{r.prefix + "AUTH", r.Auth, r.AuthFile}
}

func (r namedRedis) sentinelAuth() loginSource {
	return loginSource{r.prefix + "SENTINEL_AUTH", r.SentinelAuth, r.SentinelAuthFile}
}

// whereRedis tells a log where counts are kept.
func (c *Config) whereRedis() []any {
	args := []any{"budget", c.Store.Budget.String()}
	for i, r := range c.redises() {
		at, err := r.target()
		if err != nil {
			continue // the store would not have been opened
		}
		args = append(args, [...]string{"at", "per_second_at"}[i], at.String())
	}
	return args
}
