package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// Sidecar is one sidecar: made by New, which opens its sockets; Run serves until its context ends; Close releases all
// that New took. Neither Redis nor rules need to be there.
//
// It is four components. Each is started after those above it, and stopped before them.
type Sidecar struct {
	cfg     settings.Config
	world   World
	started time.Time
	drained atomic.Pointer[time.Time] // when stopping began

	reports reports // what others see of it
	counts  counts  // what it decides by
	updates updates // what changes while it runs
	serving serving // what others call

	closing sync.Once
	closed  error
}

// Addresses are where a sidecar listens, with real ports; empty where it does not.
type Addresses struct{ GRPC, UDS, HTTP, Debug, Metrics string }

// New assembles a sidecar and opens its sockets. It fails on what only an operator can mend: a socket that is taken,
// certificates that cannot be read.
func New(cfg settings.Config) (*Sidecar, error) { return NewIn(World{}, cfg) }

// assemble is New with a store of the caller's; nil makes the one that cfg asks for.
func assemble(cfg settings.Config, world World, counter engine.Counter) (*Sidecar, error) {
	s := &Sidecar{cfg: cfg, world: world, started: time.Now().UTC()}
	for _, start := range []func() error{
		func() error { return s.reports.Start(s) },
		func() error { return s.counts.Start(s, counter) },
		func() error { return s.updates.Start(s) },
		func() error { return s.serving.Start(s) },
	} {
		err := start()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.reports.telemetry.Measure(func() any { return s.Stats() })
	s.announce()
	return s, nil
}

// Close gives back everything. It may be called more than once.
func (s *Sidecar) Close() error {
	s.closing.Do(func() {
		s.serving.Stop()
		s.updates.Stop()
		s.closed = s.counts.Stop()
		s.reports.Stop(s.flushTime)
	})
	return s.closed
}

// Addresses returns where the sidecar listens.
func (s *Sidecar) Addresses() Addresses { return s.serving.sockets.addresses() }

// Reload reads the rules of files again.
func (s *Sidecar) Reload() {
	if s.updates.files != nil {
		s.updates.files.Reload()
	}
}

// degraded names what does not work as it should. It asks the servers of Redis for a sign of life.
func (s *Sidecar) degraded() []string {
	if s.counts.redis == nil {
		return s.degradedServing("")
	}
	return s.degradedServing(s.storeAway(s.counts.redis.Ping))
}

// degradedServing is degradedBy of a sidecar that serves, with its connections.
func (s *Sidecar) degradedServing(away string) []string {
	parts := s.degradedBy(away)
	if s.serving.clients.Full() {
		parts = append(parts, "connections: some were closed to make room")
	}
	return parts
}

// storeAway is why Redis cannot decide, or nothing. ping asks its servers.
func (s *Sidecar) storeAway(ping func(context.Context) string) string {
	return s.reports.observer.StoreDegraded(ping, s.counts.redis.Breaker())
}

// degradedBy names what does not work as it should, also before anything is served. away is why Redis cannot decide.
func (s *Sidecar) degradedBy(away string) []string {
	parts := append([]string{}, s.loadsDegraded()...)
	if away != "" {
		parts = append(parts, "redis: "+away)
	}
	parts = append(parts, s.counts.abouts.mistakes()...)
	parts = append(parts, s.counts.abouts.tooOld()...)
	for _, set := range s.counts.keys.Status() {
		if set.Err != nil {
			parts = append(parts, fmt.Sprintf("jwks: %s: %d keys in use", set.Source, set.Keys))
		}
	}
	return parts
}

// flushTime is how long the last spans and statistics may take: what is left of the time that stopping has, and never
// nothing.
func (s *Sidecar) flushTime(now time.Time) time.Duration {
	const flushFor, stopFor, least = time.Second, 3900 * time.Millisecond, 100 * time.Millisecond
	began := s.drained.Load()
	if began == nil {
		return flushFor
	}
	return max(least, min(flushFor, stopFor+s.cfg.Listen.DrainDelay-now.Sub(*began)))
}
