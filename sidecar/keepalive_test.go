package sidecar

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-mesh/spillway/telemetry"
	"github.com/spillway-mesh/spillway/test/must"
)

// connect starts the gRPC server of a sidecar with this environment, and a client of it that pings like that,
// without a network: so that time is the bubble's.
func connect(t *testing.T, ping keepalive.ClientParameters, environ ...string) *grpc.ClientConn {
	t.Helper()
	s := &Sidecar{cfg: fromEnv(t, environ...)}
	s.reports.log, s.reports.telemetry = slog.New(slog.DiscardHandler), telemetry.New(telemetry.Config{})
	s.serving.streams, s.serving.endStream = context.WithCancel(context.Background())
	server := must.Get(s.newServer())(t)
	wire := bufconn.Listen(64 << 10)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(wire) // ends with Stop
	}()
	conn := must.Get(grpc.NewClient("passthrough:///wire", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(ping),
		grpc.WithIdleTimeout(0), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return wire.Dial()
		})))(t)
	t.Cleanup(func() {
		conn.Close()
		s.serving.endStream()
		server.Stop()
		<-stopped
	})
	_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatalf("the first call: %v", err)
	}
	synctest.Wait() // a call may be answered before the connection is shown as ready
	return conn
}

// Envoy's connection_keepalive pings also while no request comes. The library's default would cut such a connection
// off.
func TestAClientThatPingsEveryTenSecondsIsNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second,
			PermitWithoutStream: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if conn.WaitForStateChange(ctx, connectivity.Ready) {
			t.Errorf("a connection that is pinged every ten seconds became %v", conn.GetState())
		}
	})
}

// parting is how long both ends of a connection may take to close it, at most.
const parting = 10 * time.Second

func TestAConnectionEndsWithItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		conn := connect(t, keepalive.ClientParameters{}, "GRPC_MAX_CONNECTION_AGE=10m",
			"GRPC_MAX_CONNECTION_AGE_GRACE=1m")
		if !conn.WaitForStateChange(t.Context(), connectivity.Ready) {
			t.Fatal("the connection never ends")
		}
		// A tenth more or less, so that the connections of a fleet do not end all at once.
		if age := time.Since(begun); age < 9*time.Minute || age > 11*time.Minute+parting {
			t.Errorf("the connection ended after %v, want 10m give or take a tenth", age)
		}
	})
}

func TestCallsHaveAGraceAfterTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		conn := connect(t, keepalive.ClientParameters{}, "GRPC_MAX_CONNECTION_AGE=10m",
			"GRPC_MAX_CONNECTION_AGE_GRACE=5m")
		stream, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		if age := time.Since(begun); age < 14*time.Minute || age > 16*time.Minute+parting {
			t.Errorf("a call was cut off after %v (%v), want 15m give or take a tenth of the age", age, err)
		}
	})
}
