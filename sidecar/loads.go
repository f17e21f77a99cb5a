package sidecar

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

// loads is what became of the loads of the rules so far.
type loads struct{ good, refused atomic.Bool } // there was a good one; the newest was refused

func (l *loads) degraded() []string {
	switch {
	case !l.good.Load():
		return []string{"rules: no good load yet"}
	case l.refused.Load():
		return []string{"rules: the newest load was refused, the last good one is in use"}
	}
	return nil
}

// unready is why this sidecar is not ready, or nothing.
func (s *Sidecar) unready() string {
	if s.cfg.Rules.Required && !s.loads.good.Load() {
		return "no good rules yet, and RULES_REQUIRED is set"
	}
	return ""
}

// publish takes a load of the rules: all of it, or nothing.
func (s *Sidecar) publish(load rules.Load) {
	for _, p := range load.Problems {
		level := slog.LevelError
		if p.Warning {
			level = slog.LevelWarn
		}
		line := strings.TrimSuffix(rules.FormatProblems([]descriptors.Problem{p}), "\n")
		s.loadLog.Log(context.Background(), level, line)
	}
	for _, d := range load.Refused {
		s.telemetry.PublishedRefused()
		s.loadLog.Error("published rules refused", "domain", d.Domain, "version", d.Version, "hash", d.Hash, "instead", "the ones before stay")
	}
	s.loads.refused.Store(load.Rejected() || len(load.Refused) > 0)
	if load.Rejected() {
		s.telemetry.LoadFailed()
		s.refused(load)
		return
	}
	s.observer.Use(load.Set)
	s.engine.Use(load.Set)
	s.inUse.Store(&rulesInUse{load.Hash, time.Now().UTC(), load.Published})
	s.forget()
	s.serves(load.Set.Domains())
	if !s.loads.good.Swap(true) && s.cfg.Rules.Required {
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
		s.loadLog.Info("ready: there are rules now")
	}
	s.telemetry.Loaded(load.Hash, time.Now())
	s.loadLog.Info("rules loaded", "files", load.Files, "domains", len(load.Set.Domains()), "limits", limits(load.Set), "hash", load.Hash)
}

// limits returns how many limits, blocks and allows a set holds.
func limits(set *descriptors.Set) (count int) {
	for range set.Effects() {
		count++
	}
	return count
}

// refused says why a load was not taken, and what is in use instead.
func (s *Sidecar) refused(load rules.Load) {
	instead := "the last good rules stay"
	if !s.loads.good.Load() {
		instead = "there are no rules yet, so every request is admitted"
	}
	if load.Err != nil {
		s.loadLog.Error("rules not loaded: "+load.Err.Error(), "instead", instead)
		return
	}
	errors := 0
	for _, p := range load.Problems {
		if !p.Warning {
			errors++
		}
	}
	s.loadLog.Error("rules refused", "errors", errors, "files", load.Files, "instead", instead)
}

// domains are the names of those that there are rules for now.
func (s *Sidecar) domains() []string {
	set := s.engine.Rules()
	if set == nil {
		return nil
	}
	return set.Domains()
}
