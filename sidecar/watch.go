package sidecar

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/telemetry"
)

// The doors, as traces and the log of decisions call them.
const (
	doorRLS      = "rls"
	doorExtAuthz = "ext_authz"
	doorJSON     = "json"
)

// watched is the engine behind a door, with a span and a line in the log for those decisions that are to have them.
type watched struct {
	engine    door.Decider
	door      string
	tracer    *telemetry.Tracer      // nil: no spans
	decisions *telemetry.DecisionLog // nil: no lines
}

// watch is the engine as a door gets it. Where nobody watches, it is the engine itself.
func (s *Sidecar) watch(name string) door.Decider {
	if s.tracer == nil && s.decisions == nil {
		return s.engine
	}
	return watched{engine: s.engine, door: name, tracer: s.tracer, decisions: s.decisions}
}

// Decide decides, and tells of it.
func (w watched) Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
	start := time.Now()
	var span telemetry.Span
	if w.tracer != nil {
		ctx, span = w.tracer.Decide(ctx)
		defer span.End()
	}
	w.engine.Decide(ctx, req, v)
	logged := w.decisions != nil && w.decisions.Wants(v.Outcome())
	if !logged && !span.Recording() {
		return
	}
	told := summary(v)
	told.Door, told.Took, told.Trace = w.door, time.Since(start), span.Trace()
	if ctx.Value(overJSON{}) != nil {
		told.Door = doorJSON
	}
	span.Tell(&told)
	if logged {
		w.decisions.Write(told)
	}
}

// summary is what may be told of a verdict: the configuration's words, and none of the client's.
func summary(v *engine.Verdict) telemetry.Summary {
	s := telemetry.Summary{Outcome: v.Outcome(), Status: v.HTTPStatus(), Degraded: v.Degraded}
	if v.Match.Domain != nil {
		s.Domain = v.Match.Domain.Name
	}
	if e := v.Effect(); e != nil {
		s.Rule, s.Scope = e.Rule, e.Scope
	}
	return s
}

// overJSON marks the context of requests that came over HTTP.
type overJSON struct{}

// watchJSON lets the decisions behind /json be told apart, and be part of their caller's traces.
func (s *Sidecar) watchJSON(next http.Handler) http.Handler {
	if s.tracer == nil && s.decisions == nil {
		return next
	}
	marked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), overJSON{}, true)))
	})
	if s.tracer == nil {
		return marked
	}
	return s.tracer.HTTP(marked)
}

// startDecisionLog starts the log of decisions, if there is to be one.
func (s *Sidecar) startDecisionLog() error {
	if one(s.cfg.Log.Decisions, "off") {
		return nil
	}
	s.decisions = s.telemetry.DecisionLog(telemetry.DecisionLogConfig{
		All: one(s.cfg.Log.Decisions, "all"), Rate: s.cfg.Log.DecisionsRate, Log: s.log,
	})
	s.defers("log of decisions", s.decisions.Close)
	return nil
}
