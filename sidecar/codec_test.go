package sidecar

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/rlsvc"
	"github.com/spillway-mesh/spillway/test/must"
)

const shouldRateLimitMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// refusingDecider refuses every request by its first descriptor, in the name of its first value.
type refusingDecider struct{}

func (refusingDecider) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	v.Refused = true
	for i := range req.Descriptors {
		s := engine.Status{}
		if i == 0 {
			e := &descriptors.Effect{Unit: descriptors.Minute, Multiplier: 1,
				Limit: limit.Limit{Count: 10, Window: time.Minute}}
			if entries := req.Descriptors[0].Entries; len(entries) > 0 {
				e.Name = entries[0].Value
			}
			s = engine.Status{Over: true, Effect: e}
		}
		v.Statuses = append(v.Statuses, s)
	}
}

// serveCodec runs a gRPC server in this process until the test ends, and returns a client of it.
func serveCodec(tb testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) *grpc.ClientConn {
	tb.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(opts...)
	register(server)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(listener) // ends with Stop
	}()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		tb.Fatalf("client: %v", err)
	}
	tb.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-stopped
	})
	return conn
}

// codecDoor runs the rate limit service with the codec, health and reflection beside it.
func codecDoor(tb testing.TB, opts ...grpc.ServerOption) *grpc.ClientConn {
	return serveCodec(tb, func(s *grpc.Server) {
		rlsvc.New(rlsvc.Config{Engine: refusingDecider{}}).Register(s)
		healthpb.RegisterHealthServer(s, health.NewServer())
		reflection.Register(s)
	}, append(opts, grpc.ForceServerCodecV2(door.NewCodec()))...)
}

// rawCodec sends and takes bytes as they are: as an Envoy would that sends what generated code would not.
type rawCodec struct{}

func (rawCodec) Name() string { return proto.Name }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func typicalRequest(value string) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: value}}},
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "203.0.113.7"}}},
	}}
}

func TestCodecCarriesTheDoor(t *testing.T) {
	var intercepted string
	note := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		intercepted = info.FullMethod
		return next(ctx, req)
	}
	client := ratelimitv3.NewRateLimitServiceClient(codecDoor(t, grpc.ChainUnaryInterceptor(note)))
	answer := must.Get(client.ShouldRateLimit(t.Context(), typicalRequest("alice")))(t)
	if answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || len(answer.GetStatuses()) != 2 {
		t.Errorf("answered %v", answer)
	}
	if name := answer.GetStatuses()[0].GetCurrentLimit().GetName(); name != "alice" {
		t.Errorf("the value arrived as %q", name)
	}
	if intercepted != shouldRateLimitMethod {
		t.Errorf("the interceptor saw %q", intercepted)
	}
}

func TestCodecTakesBytesThatAreNotUTF8(t *testing.T) {
	conn := codecDoor(t)
	entry := []byte{0x0a, 0x04, 'u', 's', 'e', 'r', 0x12, 0x01, 0xff}
	wire := append([]byte{0x12, byte(len(entry) + 2), 0x0a, byte(len(entry))}, entry...)
	var answer []byte
	err := conn.Invoke(t.Context(), shouldRateLimitMethod, &wire, &answer, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatalf("a value that is not UTF-8 walks past every limit: %v", err)
	}
	if !bytes.HasPrefix(answer, []byte{0x08, 0x02}) {
		t.Errorf("not refused: %x", answer)
	}
}

func TestCodecTakesLargeMessages(t *testing.T) {
	client := ratelimitv3.NewRateLimitServiceClient(codecDoor(t))
	req := typicalRequest(string(bytes.Repeat([]byte{'x'}, 60<<10)))
	for len(req.Descriptors) < 5000 {
		req.Descriptors = append(req.Descriptors, req.Descriptors[1])
	}
	answer := must.Get(client.ShouldRateLimit(t.Context(), req))(t)
	if len(answer.GetStatuses()) != 5000 {
		t.Errorf("%d statuses for 5000 descriptors", len(answer.GetStatuses()))
	}
}

func TestUndecodableMessageIsAnError(t *testing.T) {
	wire := []byte{0x0a, 0x7f}
	var answer []byte
	err := codecDoor(t).Invoke(t.Context(), shouldRateLimitMethod, &wire, &answer, grpc.ForceCodecV2(rawCodec{}))
	if status.Code(err) != codes.Internal {
		t.Errorf("error %v, want Internal", err)
	}
}

func TestHealthAndReflectionShareTheServer(t *testing.T) {
	conn := codecDoor(t)
	got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	if got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health says %v", got.GetStatus())
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}})
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	files := reply.GetFileDescriptorResponse().GetFileDescriptorProto()
	if !slices.ContainsFunc(files, func(f []byte) bool {
		return bytes.Contains(f, []byte("envoy/service/ratelimit/v3/rls.proto"))
	}) {
		t.Errorf("reflection does not show the service: %v", reply)
	}
}

// generatedService answers with generated code.
type generatedService struct{}

func (generatedService) ShouldRateLimit(_ context.Context, req *ratelimitv3.RateLimitRequest) (
	*ratelimitv3.RateLimitResponse, error) {
	statuses := make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(req.GetDescriptors()))
	return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK, Statuses: statuses}, nil
}

func TestOtherServersKeepTheirCodec(t *testing.T) {
	codecDoor(t)
	if encoding.GetCodecV2(proto.Name) == door.NewCodec() {
		t.Error("the codec is registered for the whole process")
	}
	conn := serveCodec(t, func(s *grpc.Server) { ratelimitv3.RegisterRateLimitServiceServer(s, generatedService{}) })
	answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), typicalRequest("alice"))
	if err != nil {
		t.Fatalf("a server without the codec: %v", err)
	}
	if answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Errorf("answered %v", answer)
	}
}

// TestAnswersReachTheirOwnCallers sends calls with their own name on one connection, some of which hang up, and looks
// for another's in the answers: their memory is used again while others are still being sent.
func TestAnswersReachTheirOwnCallers(t *testing.T) {
	client := ratelimitv3.NewRateLimitServiceClient(codecDoor(t, grpc.NumStreamWorkers(4)))
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 100 {
				name := strings.Repeat(string(rune('a'+caller)), 1+(7*i+caller)%200)
				ctx, leave := context.WithCancel(t.Context())
				if i%10 == 9 {
					go leave()
				}
				answer, err := client.ShouldRateLimit(ctx, typicalRequest(name))
				leave()
				if status.Code(err) == codes.Canceled && i%10 == 9 {
					continue
				}
				if got := answer.GetStatuses(); err != nil || len(got) != 2 ||
					got[0].GetCurrentLimit().GetName() != name {
					t.Errorf("%s got %v, %v", name, answer, err)
					return
				}
			}
		})
	}
	callers.Wait()
}
