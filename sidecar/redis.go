package sidecar

import (
	"fmt"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/store"
)

// openRedis makes the shared store. It does not wait for Redis to be there.
func (s *Sidecar) openRedis() error {
	cfg := store.RedisConfig{
		Patience: s.cfg.Store.Patience, DenialEntries: s.cfg.Store.DenialCache, DenialBytes: s.counts.budget.denials,
		Leases: s.cfg.Store.Leases, Heartbeat: keys.Heartbeat(s.cfg.Store.KeyPrefix),
		OnError: s.storeFailed,
	}
	s.counts.abouts.wake = make(chan struct{}, 1)
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
		servers, err := named.Servers(s.cfg.RedisTLS, s.reports.log, s.reports.secrets.AddRecent)
		if err != nil {
			return nil, fmt.Errorf("set up Redis: %w", err)
		}
		servers.Dial = s.world.Dial
		all = append(all, redis.Config{
			Servers: servers, Prefix: [...]string{"", perSecond}[i], Silence: s.cfg.Store.Silence,
			Breaker: breakerConfig(s.cfg.Breaker), Replicas: named.AsksReplicas(),
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

// breakerConfig is the settings in the terms of package redis.
func breakerConfig(b settings.Breaker) redis.BreakerConfig {
	return redis.BreakerConfig{Failures: uint32(b.Failures), Open: b.Open, Probes: uint32(b.Probes)}
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
