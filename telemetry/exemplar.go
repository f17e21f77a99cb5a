package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// exemplarOf returns what leads from a metric to the trace of a decision: nil where no trace of it is kept.
func exemplarOf(ctx context.Context) *prometheus.Exemplar {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return nil
	}
	return &prometheus.Exemplar{Value: 1, Timestamp: time.Now(), Labels: prometheus.Labels{
		"trace_id": span.TraceID().String(), "span_id": span.SpanID().String(),
	}}
}

// callKey is that of the exemplar of a call in its context.
type callKey struct{}

// withExemplar returns a context in which the decision of a call leaves its exemplar.
func withExemplar(ctx context.Context) (context.Context, *prometheus.Labels) {
	left := new(prometheus.Labels)
	return context.WithValue(ctx, callKey{}, left), left
}

// leaveExemplar lets the time of the call lead to the trace of its decision.
func leaveExemplar(ctx context.Context, e *prometheus.Exemplar) {
	if left, is := ctx.Value(callKey{}).(*prometheus.Labels); is {
		*left = e.Labels
	}
}
