package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// Watch returns an observer that ends the span of each decision that has one, and logs those that the log is to have.
// Without a tracer no decision has a span, and log may be nil.
func Watch(log *DecisionLog) engine.Observer {
	return func(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
		span := trace.SpanFromContext(ctx)
		defer span.End()
		logged := log != nil && log.Wants(v.Outcome)
		if !logged && !span.IsRecording() {
			return
		}
		s := summary(req, v)
		if span.IsRecording() {
			s.Trace = span.SpanContext().TraceID().String()
			s.describe(span)
		}
		if logged {
			s.ID = v.ID.String()
			log.Write(s)
		}
	}
}

// summary is what logs and traces may hold of a verdict: the configuration's words, and none of the client's.
func summary(req *descriptors.Request, v *engine.Verdict) Summary {
	s := Summary{
		Door: req.Door, Outcome: v.Outcome, Status: v.HTTPStatus, Degraded: v.Degraded, Held: v.Held(),
		Took: v.Took,
	}
	if v.Match.Domain != nil {
		s.Domain = v.Match.Domain.Name
	}
	if v.Effect != nil {
		s.Rule, s.Scope = v.Effect.Rule, v.Effect.Scope
	}
	return s
}
