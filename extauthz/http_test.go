package extauthz

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
)

// TestHTTPIsReadLikeAMessage: tests of rules and replays ask what Envoy would have asked.
func TestHTTPIsReadLikeAMessage(t *testing.T) {
	wire := must.Get(proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{
			Principal: "spiffe://mesh/a",
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "::ffff:192.0.2.7", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711},
			}}},
		},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "POST", Path: "/a?b=c", Host: "shop.example:80",
			HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
				{Key: ":path", RawValue: []byte("/a?b=c")}, {Key: "X-Api-Key", RawValue: []byte("one")},
				{Key: "x-api-key", RawValue: []byte("two")},
			}},
		}},
		ContextExtensions: map[string]string{"plan": "gold", "domain": "shop"},
	}}))(t)
	var parsed, taken Message
	must.Do(t, parsed.ParseWire(wire))
	taken.TakeHTTP(&HTTP{Path: "/before", Headers: []identity.Header{{Name: "before", Value: "x"}},
		Extensions: []descriptors.Entry{{Key: "before"}}})
	got := taken.TakeHTTP(&HTTP{
		Domain: "shop", Method: "POST", Path: "/a?b=c", Host: "shop.example:80", Peer: "::ffff:192.0.2.7",
		Principal: "spiffe://mesh/a",
		Headers: []identity.Header{{Name: ":path", Value: "/a?b=c"}, {Name: "X-Api-Key", Value: "one"},
			{Name: "x-api-key", Value: "two"}},
		Extensions: []descriptors.Entry{{Key: "plan", Value: "gold"}},
	})
	if diff := cmp.Diff(&parsed.Request, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff !=
		"" {
		t.Errorf("a message (-) and what a caller without one takes (+) differ:\n%s", diff)
	}
	taken.TakeHTTP(&HTTP{Path: "/", Client: &identity.Client{User: "alice"}})
	err := taken.ParseWire(wire)
	if err != nil || taken.Request.Evidence.Verified != nil {
		t.Errorf("a message after a client that was told: %v, %v", taken.Request.Evidence.Verified, err)
	}
}
