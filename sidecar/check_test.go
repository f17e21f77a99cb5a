package sidecar

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/test/must"
)

const checkMethod = "/envoy.service.auth.v3.Authorization/Check"

// blockingDecider refuses every request with its path for a reason.
type blockingDecider struct{}

func (blockingDecider) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	v.Refused = true
	v.Match.Block = &descriptors.Effect{Rule: "all", Action: descriptors.Block,
		Measure: descriptors.Measure{Reason: req.Subject.Path}}
	v.Refusing = v.Match.Block
	v.Conclude()
}

// checkDoor runs the ext_authz service with the codec, and reflection beside it.
func checkDoor(tb testing.TB) *grpc.ClientConn {
	return serveCodec(tb, func(s *grpc.Server) {
		extauthz.New(extauthz.Config{Engine: blockingDecider{}}).Register(s)
		reflection.Register(s)
	}, grpc.ForceServerCodecV2(door.NewCodec()))
}

func TestCodecCarriesExtAuthz(t *testing.T) {
	client := authv3.NewAuthorizationClient(checkDoor(t))
	for _, path := range []string{"/search", "/" + strings.Repeat("long/", 12<<10)} {
		answer := must.Get(client.Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Path: path}},
		}}))(t)
		if answer.GetStatus().GetCode() != int32(codes.PermissionDenied) ||
			answer.GetDeniedResponse().GetStatus().GetCode() != 403 {
			t.Errorf("answered %v", answer)
		}
		if !strings.Contains(answer.GetDeniedResponse().GetBody(), path) {
			t.Errorf("a path of %d bytes did not arrive", len(path))
		}
	}
}

func TestCodecTakesChecksThatAreNotUTF8(t *testing.T) {
	http := []byte{0x22, 0x03, '/', 0xff, 'x'}
	request := append([]byte{0x12, byte(len(http))}, http...)
	attributes := append([]byte{0x22, byte(len(request))}, request...)
	wire := append([]byte{0x0a, byte(len(attributes))}, attributes...)
	var answer []byte
	err := checkDoor(t).Invoke(t.Context(), checkMethod, &wire, &answer, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		t.Fatalf("a path that is not UTF-8 is left to Envoy's failure mode: %v", err)
	}
	if !bytes.HasPrefix(answer, []byte{0x0a, 0x02, 0x08, 0x07}) {
		t.Errorf("not refused: %x", answer)
	}
}

func TestUndecodableCheckIsAnError(t *testing.T) {
	wire := []byte{0x0a, 0x7f}
	var answer []byte
	err := checkDoor(t).Invoke(t.Context(), checkMethod, &wire, &answer, grpc.ForceCodecV2(rawCodec{}))
	if status.Code(err) != codes.Internal {
		t.Errorf("error %v, want Internal", err)
	}
}

func TestReflectionShowsExtAuthz(t *testing.T) {
	stream, err := reflectionpb.NewServerReflectionClient(checkDoor(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	err = stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "envoy.service.auth.v3.Authorization"}})
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	reply, err := stream.Recv()
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	files := reply.GetFileDescriptorResponse().GetFileDescriptorProto()
	if !slices.ContainsFunc(files, func(f []byte) bool {
		return bytes.Contains(f, []byte("envoy/service/auth/v3/external_auth.proto"))
	}) {
		t.Errorf("reflection does not show the service: %v", reply)
	}
}
