package sidecar

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/door"
)

// budgetRules have a limit for each way through a sidecar.
const budgetRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: plan, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: team, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: host, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: api_key, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: spent, rate_limit: {unit: day, requests_per_unit: 1}}
rules:
  - {name: wide, scope: ip, match: {methods: [GET]}, limit: 1000000000/1h}
  - {name: narrow, scope: ip, match: {methods: [POST]}, limit: 1/24h}
`

// limited is a call of the rate limit service with a descriptor per key.
func limited(domain string, keys ...string) proto.Message {
	request := &ratelimitv3.RateLimitRequest{Domain: domain}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{
			Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: "alice"}},
		})
	}
	return request
}

// checked is a call of ext_authz.
func checked(domain, method string) proto.Message {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "192.0.2.7"}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: method, Path: "/items/7?page=2", Host: "shop.example",
			Headers: map[string]string{":path": "/items/7?page=2", "user-agent": "curl/8", "accept": "*/*",
				"x-request-id": "6c2d7b1e"},
		}},
		ContextExtensions: map[string]string{"domain": domain},
	}}
}

// budgets are how many allocations a call may make from the buffer that grpc received to the buffer that it has sent:
// one for the key of each counter, which the store may keep, and over ext_authz one for the text of the client's
// address.
var budgets = []struct {
	name    string
	service string
	message proto.Message
	most    float64
}{
	{"rls, unknown domain", rateLimitService, limited("other", "user"), 0},
	{"rls, no limit", rateLimitService, limited("shop", "other"), 0},
	{"rls, admitted", rateLimitService, limited("shop", "user"), 1},
	{"rls, admitted with an API key", rateLimitService, limited("shop", "user", "api_key"), 2},
	{"rls, refused", rateLimitService, limited("shop", "spent"), 1},
	{"rls, four descriptors", rateLimitService, limited("shop", "user", "plan", "team", "host"), 4},
	{"ext_authz, unknown domain", authService, checked("other", "GET"), 0},
	{"ext_authz, no limit", authService, checked("shop", "PUT"), 1},
	{"ext_authz, admitted", authService, checked("shop", "GET"), 2},
	{"ext_authz, refused", authService, checked("shop", "POST"), 2},
}

// registered notes the services of a server.
type registered map[string]grpc.MethodHandler

// RegisterService notes the only method of a door.
func (r registered) RegisterService(desc *grpc.ServiceDesc, _ any) {
	r[desc.ServiceName] = desc.Methods[0].Handler
}

// TestAServedCallHasABudget counts what is ours of a call: codec, interceptor, door, engine, memory store, metrics.
func TestAServedCallHasABudget(t *testing.T) {
	s := begin(t, budgetRules)
	doors := registered{}
	s.register(doors)
	intercept, codec := s.intercept(), door.NewCodec()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, b := range budgets {
		wire, err := proto.Marshal(b.message)
		if err != nil {
			t.Fatal(err)
		}
		received := mem.BufferSlice{mem.SliceBuffer(wire)}
		decode := func(v any) error { return codec.Unmarshal(received, v) }
		got := testing.AllocsPerRun(1000, func() {
			reply, err := doors[b.service](nil, ctx, decode, intercept)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := codec.Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			sent.Free()
		})
		if got > b.most+forgotten {
			t.Errorf("%s: %v allocations per call, at most %v", b.name, got, b.most)
		}
	}
}

// BenchmarkServedCall measures a call over a connection, client and server together.
func BenchmarkServedCall(b *testing.B) {
	s := begin(b, budgetRules)
	conn := dial(b, s.Addresses().GRPC)
	methods := map[string]string{rateLimitService: "/" + rateLimitService + "/ShouldRateLimit", authService: "/" +
		authService + "/Check"}
	for _, of := range budgets {
		wire, err := proto.Marshal(of.message)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var answer []byte
				err := conn.Invoke(b.Context(), methods[of.service], &wire, &answer, grpc.ForceCodecV2(rawCodec{}))
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
