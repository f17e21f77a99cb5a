package sidecar

import (
	"net/http"
	"strings"

	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/telemetry"
)

// watch is the engine as a door gets it. Without a record, traces and a log of decisions it is the engine itself.
func (s *Sidecar) watch(name string) door.Decider {
	var decider door.Decider = s.engine
	if s.journal != nil {
		decider = &recording{next: decider, journal: s.journal, onPanic: s.observer.Panicked}
	}
	if s.tracer == nil && s.decisions == nil {
		return decider
	}
	return telemetry.Watch{Engine: decider, Door: name, Tracer: s.tracer, Decisions: s.decisions}
}

// watchJSON lets the decisions behind /json be told apart, and be part of their caller's traces.
func (s *Sidecar) watchJSON(next http.Handler) http.Handler {
	if s.tracer == nil && s.decisions == nil {
		return next
	}
	return telemetry.WatchJSON(next, s.tracer)
}

// startDecisionLog starts the log of decisions, if there is to be one.
func (s *Sidecar) startDecisionLog() error {
	if strings.EqualFold(s.cfg.Log.Decisions, "off") {
		return nil
	}
	s.decisions = s.telemetry.DecisionLog(telemetry.DecisionLogConfig{
		All: strings.EqualFold(s.cfg.Log.Decisions, "all"), Rate: s.cfg.Log.DecisionsRate, Log: s.log,
	})
	s.defers("log of decisions", s.decisions.Close)
	return nil
}
