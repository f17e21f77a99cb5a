package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// formats are the names of OTEL_PROPAGATORS that mean something here. Both kinds of B3 read either of its forms.
var formats = map[string]propagation.TextMapPropagator{
	"tracecontext": propagation.TraceContext{}, "b3": b3.New(), "b3multi": b3.New(),
}

// TraceConfig is how spans are made. Where they go, with which headers and certificates, is in the standard variables
// OTEL_EXPORTER_OTLP_* of the process, and how they are gathered in OTEL_BSP_*.
type TraceConfig struct {
	GRPC   bool // spans go over gRPC, else over HTTP
	Source Source

	Rate    float64 // share of the requests without a caller's span that get one, 0..1
	Sampler string  // OTEL_TRACES_SAMPLER, as the process has it, which goes before Rate; empty: not set
	// where a caller's span is looked for, the first that is there wins: tracecontext, b3, b3multi; others are ignored
	Propagators []string
	Queue       int // spans that may wait to be sent; 0 means 2048. Further ones are dropped and counted
	Log         *slog.Logger

	exporter sdktrace.SpanExporter // of a test, in place of OTLP
}

// Tracer starts to make traces. It connects to no server yet, and never waits for one.
func (t *Telemetry) Tracer(cfg TraceConfig) (*Tracer, error) {
	logOpenTelemetry(cfg.Log)
	exporter, err := cfg.open()
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	o := newOutlet(exporter, cfg, &t.totals)
	t.traced.Store(true)
	options := []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(o),
		sdktrace.WithResource(cfg.Source.resource(cfg.Log))}
	if cfg.Sampler == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Rate))))
	}
	provider := sdktrace.NewTracerProvider(options...)
	tracer := &Tracer{provider: provider, tracer: provider.Tracer("spillway"), follows: cfg.followsParents(), outlet: o}
	for _, name := range cfg.Propagators {
		if format := formats[name]; format != nil {
			tracer.formats = append(tracer.formats, format)
		}
	}
	return tracer, nil
}

// followsParents reports whether the sampler leaves the choice to a caller that has a span.
func (c TraceConfig) followsParents() bool {
	switch c.Sampler {
	case "always_on", "always_off", "traceidratio":
		return false
	}
	return true
}

// open makes the exporter.
func (c TraceConfig) open() (sdktrace.SpanExporter, error) {
	switch {
	case c.exporter != nil:
		return c.exporter, nil
	case c.GRPC:
		return otlptracegrpc.New(context.Background())
	}
	return otlptracehttp.New(context.Background())
}

// Close sends what waits, until ctx ends, and drops the rest. It does not fail: losing spans is not a fault of the
// sidecar.
func (t *Tracer) Close(ctx context.Context) {
	err := t.provider.Shutdown(ctx)
	t.outlet.cut()
	if err != nil {
		t.outlet.log.Warn("the last spans were not sent in time", "error", err)
	}
}

// defaultSpanQueue is how many spans may wait to be sent.
const defaultSpanQueue = sdktrace.DefaultMaxQueueSize

// outlet hands ended spans to a batch processor and never more than its queue takes, so that what is dropped is dropped
// and counted here.
type outlet struct {
	sdktrace.SpanProcessor
	exporter sdktrace.SpanExporter
	counters *totals
	log      *slog.Logger
	queue    int64
	waiting  atomic.Int64    // spans that were handed over and whose export has not begun
	life     context.Context // ends exports that outlast the sidecar
	cut      context.CancelFunc
}

func newOutlet(exporter sdktrace.SpanExporter, cfg TraceConfig, counters *totals) *outlet {
	o := &outlet{exporter: exporter, counters: counters, log: cfg.Log, queue: int64(cfg.Queue)}
	if o.queue <= 0 {
		o.queue = defaultSpanQueue
	}
	o.life, o.cut = context.WithCancel(context.Background())
	o.SpanProcessor = sdktrace.NewBatchSpanProcessor(shipping{o}, sdktrace.WithMaxQueueSize(int(o.queue)))
	return o
}

// OnEnd takes a span, or drops it when too many wait.
func (o *outlet) OnEnd(s sdktrace.ReadOnlySpan) {
	if o.waiting.Add(1) > o.queue {
		o.waiting.Add(-1)
		o.counters.Full.Add(1)
		return
	}
	o.SpanProcessor.OnEnd(s)
}

// shipping is the exporter of an outlet.
type shipping struct{ o *outlet }

// ExportSpans sends spans. A failure is counted and logged, and not returned.
func (s shipping) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	s.o.waiting.Add(-int64(len(spans)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.o.life, cancel)
	defer stop()
	err := s.o.exporter.ExportSpans(ctx, spans)
	if err != nil {
		s.o.counters.Failed.Add(int64(len(spans)))
		s.o.log.Warn("traces: spans could not be sent", "spans", len(spans), "error", err)
		return nil
	}
	s.o.counters.Sent.Add(int64(len(spans)))
	return nil
}

// closeWithin is how long the connection of the exporter may take to close.
const closeWithin = 100 * time.Millisecond

// Shutdown closes the exporter, also when ctx has ended.
func (s shipping) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return s.o.exporter.Shutdown(ctx)
}
