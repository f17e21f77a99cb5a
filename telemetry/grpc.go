package telemetry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/engine"
)

// GRPC is what the interceptors need to know.
type GRPC struct {
	// Methods are the full names of the methods that are measured. Their doors answer panics themselves, with a
	// decision; a panic in any other method fails the call.
	Methods []string
	Log     *slog.Logger
}

// method is the metrics of one gRPC method.
type method struct {
	requests prometheus.Counter
	latency  prometheus.Observer
	times    *times // for statsd
}

func (m *method) observe(took time.Duration, exemplar *prometheus.Labels) {
	if exemplar == nil || *exemplar == nil {
		m.latency.Observe(took.Seconds())
		return
	}
	m.latency.(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(), *exemplar)
}

// Unary returns the interceptor that counts and times calls, and keeps a panic from ending the process where no door
// does.
func (t *Telemetry) Unary(cfg GRPC) grpc.UnaryServerInterceptor {
	methods := make(map[string]method, len(cfg.Methods))
	for _, full := range cfg.Methods {
		name := full[strings.LastIndexByte(full, '/')+1:]
		methods[full] = method{t.requests.WithLabelValues(name), t.latency.WithLabelValues(name), new(times)}
		t.methodSource(name, methods[full])
	}
	failed := t.errors.of("service_error")
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		m, measured := methods[info.FullMethod]
		if !measured {
			return t.unary(ctx, req, info, handler, cfg.Log)
		}
		m.requests.Inc()
		began := time.Since(t.began) // without the time of day, which takes as long again to read
		var exemplar *prometheus.Labels
		if t.traced.Load() {
			ctx, exemplar = withExemplar(ctx)
		}
		resp, err := handler(ctx, req)
		took := time.Since(t.began) - began
		m.observe(took, exemplar)
		if t.timed.Load() {
			m.times.observe(took)
		}
		if err != nil {
			failed.Inc()
		}
		return resp, err
	}
}

// unary is a call that no door answers.
func (t *Telemetry) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler, log *slog.Logger,
) (resp any, err error) {
	err = t.guard(log, info.FullMethod, func() error {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, err
}

// guard calls a handler and makes an error of its panic, which is counted and logged.
func (t *Telemetry) guard(log *slog.Logger, method string, call func() error) (err error) {
	engine.Guard(func(fault any) {
		t.Panicked()
		log.Error("panic in a handler", "method", method, "panic", fault, "stack", string(debug.Stack()))
		err = status.Error(codes.Internal, "internal error")
	}, func() { err = call() })
	return err
}

// Stream returns the interceptor that keeps a panic in a streaming call from ending the process.
func (t *Telemetry) Stream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return t.guard(log, info.FullMethod, func() error { return handler(srv, ss) })
	}
}
