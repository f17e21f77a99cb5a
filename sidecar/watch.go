package sidecar

import (
	"net/http"
	"strings"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/telemetry"
)

// observe adds those who see the verdicts: metrics, live page, journal, traces and the log of decisions.
func (s *Sidecar) observe(cfg *engine.Config) {
	cfg.Observers = []engine.Observer{s.observer.Verdict, s.show}
	if s.cfg.Record.Use {
		cfg.Observers = append(cfg.Observers, s.record)
	}
	if s.tracer != nil {
		cfg.OnDecide = s.tracer.Decide
	}
	if s.tracer != nil || s.decisions != nil {
		cfg.Observers = append(cfg.Observers, telemetry.Watch(s.decisions))
	}
	cfg.Timed = len(cfg.Observers) > 2 // the others ask for times
}

// traceJSON makes the decisions behind /json part of their callers' traces.
func (s *Sidecar) traceJSON(next http.Handler) http.Handler {
	if s.tracer == nil {
		return next
	}
	return s.tracer.HTTP(next)
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
