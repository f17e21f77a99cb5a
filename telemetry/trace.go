package telemetry

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/engine"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Summary is what traces and the log of decisions have of a verdict. All words come from the configuration: nothing in
// it is the client's.
type Summary struct {
	Door     string // rls, ext_authz or json
	Domain   string // empty: one without rules
	Rule     string // that refused, blocked or exempted the request, else the one that is reported; empty: none
	Scope    string // of that rule
	Outcome  engine.Outcome
	Status   int    // as an HTTP client sees it
	Degraded string // why the shared store did not decide; empty: it did
	Held     bool   // decided by tokens on lease, without asking the store
	Took     time.Duration
	Trace    string // id of the trace; empty: none is recorded
	ID       string // by which the decision can be looked up; empty: it cannot
}

// Names of the spans.
const (
	decideSpan = "ratelimit.decide"
	tripSpan   = "redis.spend"
)

// How the spans begin. Kept, because an option in a call would be an allocation in each.
var (
	decideOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	tripOptions   = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

// Tracer makes spans: one for a decision, below the span of the caller, and in it one for each call to the shared
// store. Make one with Telemetry.Tracer. It is safe for concurrent use, and nothing in it waits for the network.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	formats  []propagation.TextMapPropagator // the first that finds a caller's span is believed
	follows  bool                            // what the caller does not sample is not sampled
	outlet   *outlet
}

// Decide begins the span of a decision, in the context that it returns, if the decision is to have one: Watch ends it.
// The caller's span is the one that HTTP left in ctx, else the one that the call's gRPC metadata names.
func (t *Tracer) Decide(ctx context.Context) context.Context {
	caller := trace.SpanContextFromContext(ctx)
	if !caller.IsValid() {
		ctx = t.extract(ctx, incoming{ctx})
		caller = trace.SpanContextFromContext(ctx)
	}
	if t.follows && caller.IsValid() && !caller.IsSampled() {
		return ctx
	}
	ctx, _ = t.tracer.Start(ctx, decideSpan, decideOptions...)
	return ctx
}

// describe puts what was decided into the span.
func (s *Summary) describe(span trace.Span) {
	words := make([]attribute.KeyValue, 0, 7)
	if s.Held {
		words = append(words, attribute.String("spillway.decided", "local"))
	}
	words = append(words, attribute.String("spillway.door", s.Door),
		attribute.String("spillway.outcome", s.Outcome.String()))
	for _, word := range [...]struct{ key, value string }{
		{"spillway.domain", s.Domain}, {"spillway.rule", s.Rule}, {"spillway.scope", s.Scope},
		{"spillway.degraded", s.Degraded},
	} {
		if word.value != "" {
			// One string that is not UTF-8 would make the whole batch unsendable.
			words = append(words, attribute.String(word.key, strings.ToValidUTF8(word.value, "_")))
		}
	}
	span.SetAttributes(words...)
}

// Trip begins the span of a call to the shared store, and returns what ends it; nil for a decision without a span. It
// is made for store.RedisConfig.
func (t *Tracer) Trip(ctx context.Context, shard string, charges int) func(reason string) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	_, span := t.tracer.Start(ctx, tripSpan, tripOptions...)
	span.SetAttributes(
		attribute.String("db.system", "redis"), attribute.String("db.system.name", "redis"),
		attribute.String("spillway.shard", strings.ToValidUTF8(shard, "_")), attribute.Int("spillway.charges", charges),
	)
	return func(reason string) {
		outcome := "decided"
		if reason != "" {
			outcome = "undecided"
			span.SetAttributes(attribute.String("spillway.reason", reason))
			span.SetStatus(codes.Error, reason)
		}
		span.SetAttributes(attribute.String("spillway.outcome", outcome))
		span.End()
	}
}

// HTTP lets a handler's decisions be part of the trace that a request's headers name.
func (t *Tracer) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(t.extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	})
}

// extract puts the caller's span into ctx, if the carrier names one.
func (t *Tracer) extract(ctx context.Context, from propagation.TextMapCarrier) context.Context {
	for _, format := range t.formats {
		found := format.Extract(ctx, from)
		if trace.SpanContextFromContext(found).IsValid() {
			return found
		}
	}
	return ctx
}

// incoming is the metadata of a gRPC call. It is read value by value, because all of it at once would be a copy.
type incoming struct{ ctx context.Context }

// Get is the first value of a key.
func (c incoming) Get(key string) string {
	values := metadata.ValueFromIncomingContext(c.ctx, key)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Set does nothing: the metadata was received.
func (incoming) Set(string, string) {}

// Keys is not asked for by any format that is supported.
func (incoming) Keys() []string { return nil }
