package sidecar

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/telemetry"
)

// The full names of the services, which health is asked about too.
const (
	rateLimitService = "envoy.service.ratelimit.v3.RateLimitService"
	authService      = "envoy.service.auth.v3.Authorization"
)

// healthNames are the services that gRPC health answers for. All have the same state.
var healthNames = []string{"", "ratelimit", rateLimitService, authService}

// No MAX_MESSAGE_BYTES may be more than gRPC receives: else this does not compile.
const _ = uint(door.MaxReceived - settings.LongestMessage)

const (
	maxHeaderList = 64 << 10 // above what Envoy takes from a client and adds: an error here would admit
	maxStreams    = 128      // per connection; Envoy opens another one beyond

	// streamWorkers serve calls without growing a stack for each. Calls beyond them get goroutines of their own. They
	// are more than processors, because a call may wait for the store. One takes some 16 KiB.
	streamWorkers = 128

	// The windows are fixed: grpc would send pings to size them, and let them grow to 16 MiB.
	streamWindow     = 64 << 10 // bytes of a call that may be under way unread; a longer message gets more
	connectionWindow = 1 << 20  // bytes of all calls of a connection
)

// newServer makes the gRPC server with health and, if asked for, reflection. The doors are registered by the caller.
func (s *Sidecar) newServer() (*grpc.Server, error) {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(door.NewCodec()),
		grpc.UnaryInterceptor(s.intercept()),
		grpc.ChainStreamInterceptor(s.reports.telemetry.Stream(s.reports.log), s.endStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(door.MaxReceived),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.InTapHandle(door.Trim),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.WaitForHandlers(true),
		// Envoy may ping an idle connection; the default answer to that is to cut it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: s.cfg.Listen.MaxAge, MaxConnectionAgeGrace: s.cfg.Listen.MaxAgeGrace,
			Time: 30 * time.Second, Timeout: 10 * time.Second,
		}),
	}
	if s.cfg.TLS.Use {
		secure, err := serverTLS(s.cfg.TLS, s.reports.log)
		if err != nil {
			return nil, fmt.Errorf("set up TLS: %w", err)
		}
		options = append(options, grpc.Creds(door.Credentials{TransportCredentials: credentials.NewTLS(secure)}))
	}
	server := grpc.NewServer(options...)
	s.addHealth(server)
	if s.cfg.Listen.Reflection {
		reflection.Register(server)
	}
	return server, nil
}

// addHealth makes the service of gRPC health.
func (s *Sidecar) addHealth(server *grpc.Server) {
	s.serving.health = health.NewServer()
	state := healthv1.HealthCheckResponse_SERVING
	if s.unready() != "" {
		state = healthv1.HealthCheckResponse_NOT_SERVING
	}
	s.setHealth(state)
	healthv1.RegisterHealthServer(server, s.serving.health)
}

// setHealth sets what gRPC health answers, unless the sidecar drains.
func (s *Sidecar) setHealth(state healthv1.HealthCheckResponse_ServingStatus) {
	for _, name := range healthNames {
		s.serving.health.SetServingStatus(name, state)
	}
}

// intercept makes the interceptor of all unary calls. There is one, because each further one is two closures for each
// call.
func (s *Sidecar) intercept() grpc.UnaryServerInterceptor {
	methods := []string{"/" + rateLimitService + "/ShouldRateLimit", "/" + authService + "/Check"}
	return s.reports.telemetry.Unary(telemetry.GRPC{Methods: methods, Log: s.reports.log})
}

// endStreams ends streaming calls (health Watch, reflection) when the sidecar drains: they would never end by
// themselves.
func (s *Sidecar) endStreams(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	stop := context.AfterFunc(s.serving.streams, cancel)
	defer stop()
	return handler(srv, endingStream{stream, ctx})
}

// endingStream is a stream whose context ends early.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is the one that ends when the sidecar drains.
func (e endingStream) Context() context.Context { return e.ctx }
