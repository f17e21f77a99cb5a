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
)

// GRPC is what the interceptors need to know.
type GRPC struct {
	Methods []string // full names of the methods that are measured
	// Answer returns what a method answers when its handler panicked, or nil: then the call fails with an internal error.
	Answer func(method string) any
	Log    *slog.Logger
}

// method is the metrics of one gRPC method.
type method struct {
	requests prometheus.Counter
	latency  prometheus.Observer
}

// Unary returns the interceptor that counts and times calls and keeps a panic from ending the process. It is the last
// resort: the doors answer panics themselves.
func (t *Telemetry) Unary(cfg GRPC) grpc.UnaryServerInterceptor {
	methods := make(map[string]method, len(cfg.Methods))
	for _, full := range cfg.Methods {
		name := full[strings.LastIndexByte(full, '/')+1:]
		methods[full] = method{t.requests.WithLabelValues(name), t.latency.WithLabelValues(name)}
	}
	failed := t.errors.WithLabelValues("service_error")
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if r := recover(); r != nil {
				resp, err = t.recovered(cfg, info.FullMethod, r)
			}
		}()
		m, measured := methods[info.FullMethod]
		if !measured {
			return handler(ctx, req)
		}
		m.requests.Inc()
		start := time.Now()
		resp, err = handler(ctx, req)
		m.latency.Observe(time.Since(start).Seconds())
		if err != nil {
			failed.Inc()
		}
		return resp, err
	}
}

// recovered counts a panic and finds the answer to the call that caused it.
func (t *Telemetry) recovered(cfg GRPC, method string, r any) (any, error) {
	t.Panicked()
	cfg.Log.Error("panic in a handler", "method", method, "panic", r, "stack", string(debug.Stack()))
	if answer := cfg.Answer(method); answer != nil {
		return answer, nil
	}
	return nil, status.Error(codes.Internal, "internal error")
}

// Stream returns the interceptor that keeps a panic in a streaming call from ending the process.
func (t *Telemetry) Stream(cfg GRPC) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if r := recover(); r != nil {
				_, err = t.recovered(cfg, info.FullMethod, r)
				if err == nil {
					err = status.Error(codes.Internal, "internal error")
				}
			}
		}()
		return handler(srv, ss)
	}
}
