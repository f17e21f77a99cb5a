package sidecar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

// origin is where rules come from.
type origin int

const (
	fromFiles origin = iota
	fromXDS          // a management server; its domains go before those of files
	origins
)

var originNames = [origins]string{"rules", "xds"}

// loads is what became of the loads of the rules so far, for each origin.
type loads struct {
	good, refused [origins]atomic.Bool // there was a good one; the newest was refused

	mu     sync.Mutex          // guards the rest, and that sets come into use one after the other
	last   [origins]rules.Load // the last good ones
	hidden []descriptors.Problem
}

// expects reports whether rules come from an origin.
func (s *Sidecar) expects(from origin) bool {
	if from == fromXDS {
		return s.updates.xds != nil
	}
	return s.updates.files != nil
}

func (s *Sidecar) loadsDegraded() []string {
	var parts []string
	for from, name := range originNames {
		switch {
		case !s.expects(origin(from)):
		case !s.updates.loads.good[from].Load():
			parts = append(parts, name+": no good load yet"+s.admitsAll())
		case s.newestRefused(origin(from)):
			parts = append(parts, name+": the newest load was refused, the last good one is in use")
		}
	}
	return append(parts, s.xdsDegraded()...)
}

// admitsAll adds to a sentence what happens before there are rules.
func (s *Sidecar) admitsAll() string {
	if s.updates.inUse.Load() != nil {
		return ""
	}
	return ", so every request is admitted"
}

// complete reports whether there was a good load from each origin.
func (s *Sidecar) complete() bool {
	for from := range origins {
		if s.expects(from) && !s.updates.loads.good[from].Load() {
			return false
		}
	}
	return true
}

// unready is why this sidecar is not ready, or nothing.
func (s *Sidecar) unready() string {
	if s.cfg.Rules.Required && !s.complete() {
		return "no good rules yet, and RULES_REQUIRED is set"
	}
	return ""
}

// publish takes a load of the rules: all of it, or nothing. The last good rules of the other origin stay as they are.
func (s *Sidecar) publish(from origin, load rules.Load) {
	s.logProblems(load.Problems)
	for _, d := range load.Refused {
		s.reports.telemetry.PublishedRefused()
		s.reports.loadLog.Error("published rules refused", "domain", d.Domain, "version", d.Version, "hash", d.Hash,
			"instead", "the ones before stay")
	}
	s.updates.loads.refused[from].Store(load.Rejected() || len(load.Refused) > 0)
	if load.Rejected() {
		s.reports.telemetry.LoadFailed()
		s.refused(from, load)
		return
	}
	s.updates.loads.mu.Lock()
	defer s.updates.loads.mu.Unlock()
	s.updates.loads.last[from] = load
	set, hash := s.join()
	s.reports.observer.Use(set)
	s.counts.engine.Use(set)
	published := s.updates.loads.last[fromFiles].Published
	s.updates.inUse.Store(&rulesInUse{hash, time.Now().UTC(), published, s.trialsOf(published), set})
	if s.counts.redis != nil {
		s.counts.redis.Forget() // what was spent may have room now
		s.counts.redis.Serve(set.Domains())
	}
	s.counts.profiles.Reread()
	before := s.complete()
	s.updates.loads.good[from].Store(true)
	if !before && s.complete() && s.cfg.Rules.Required {
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
		s.reports.loadLog.Info("ready: there are rules now")
	}
	s.reports.telemetry.Loaded(hash, time.Now())
	s.reports.loadLog.Info("rules loaded", append(s.described(from, load), "domains", len(set.Domains()), "limits",
		limits(set), "hash", hash)...)
}

func (s *Sidecar) logProblems(problems []descriptors.Problem) {
	for _, p := range problems {
		level := slog.LevelError
		if p.Warning {
			level = slog.LevelWarn
		}
		line := strings.TrimSuffix(rules.FormatProblems([]descriptors.Problem{p}), "\n")
		s.reports.loadLog.Log(context.Background(), level, line) //nolint:sloglint // the line that lint prints
	}
}

// join makes one set of the last good loads. Domains of a management server hide those of files, and each change of
// that is logged. The caller holds loads.mu.
func (s *Sidecar) join() (set *descriptors.Set, hash string) {
	files, server := &s.updates.loads.last[fromFiles], &s.updates.loads.last[fromXDS]
	if server.Set == nil {
		return files.Set, files.Hash
	}
	set, hidden := files.Set.With(server.Set)
	if !slices.Equal(hidden, s.updates.loads.hidden) {
		s.logProblems(hidden)
	}
	s.updates.loads.hidden = hidden
	sum := sha256.Sum256([]byte(files.Hash + " " + server.Hash))
	return set, hex.EncodeToString(sum[:6])
}

// limits returns how many limits, blocks and allows a set holds.
func limits(set *descriptors.Set) (count int) {
	for range set.Effects() {
		count++
	}
	return count
}

// refused logs why a load was not taken, and what is in use instead.
func (s *Sidecar) refused(from origin, load rules.Load) {
	instead := "the last good rules stay"
	if s.updates.inUse.Load() == nil {
		instead = "there are no rules yet" + s.admitsAll()
	}
	if load.Err != nil {
		args := []any{"error", load.Err, "instead", instead}
		if from == fromFiles && s.cfg.Rules.Path == "" {
			args = append(args, "mend", "RULES is not set, so the folder of RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and "+
				"RUNTIME_APPDIRECTORY is read: set RULES to a file or folder of rules")
		}
		s.reports.loadLog.Error("rules not loaded", args...)
		return
	}
	errors := 0
	for _, p := range load.Problems {
		if !p.Warning {
			errors++
		}
	}
	s.reports.loadLog.Error("rules refused", append(s.described(from, load), "errors", errors, "instead", instead)...)
}

// domains are the names of those that there are rules for now.
func (s *Sidecar) domains() []string {
	set := s.counts.engine.Rules()
	if set == nil {
		return nil
	}
	return set.Domains()
}

// newestRefused reports whether the newest load of an origin was refused. A management server reports that itself:
// where it goes back to the rules that are in use, no load follows.
func (s *Sidecar) newestRefused(from origin) bool {
	if from == fromXDS {
		return s.updates.xds.Status().Refused != ""
	}
	return s.updates.loads.refused[from].Load()
}
