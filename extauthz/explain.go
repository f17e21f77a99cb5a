package extauthz

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
)

// HTTP is a request as a proxy got it.
type HTTP struct {
	Domain    string            // empty: the default one
	Method    string            //
	Path      string            // with its query
	Host      string            //
	Headers   map[string]string // names in any case
	Peer      string            // address of the connection's other end; empty: a pipe
	Principal string            // of the peer's certificate
	Context   map[string]string // context extensions of the route
}

// Parse makes of the request what the door would read from the CheckRequest that Envoy sends.
func (s *Service) Parse(h HTTP) (*descriptors.Request, error) {
	extensions := map[string]string{}
	for name, value := range h.Context {
		extensions[name] = value
	}
	if h.Domain != "" {
		extensions[domainExtension] = h.Domain
	}
	source := &authv3.AttributeContext_Peer{Principal: h.Principal}
	if h.Peer != "" {
		source.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: h.Peer}}}
	}
	wire, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: source, ContextExtensions: extensions,
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: h.Method, Path: h.Path, Host: h.Host, Headers: h.Headers,
		}},
	}})
	if err != nil {
		return nil, fmt.Errorf("writing a CheckRequest: %w", err)
	}
	m := &Message{share: door.Share{Intake: s.config.Intake}}
	defer m.End()
	err = m.ParseWire(wire)
	if m.Request.Domain == "" {
		m.Request.Domain = s.config.DefaultDomain
	}
	return m.Asked(), err
}

// RenderJSON returns the CheckResponse to a verdict as JSON.
func (s *Service) RenderJSON(req *descriptors.Request, v *engine.Verdict) (json.RawMessage, error) {
	answer := new(authv3.CheckResponse)
	err := proto.Unmarshal(s.appendAnswer(nil, req, v), answer)
	if err != nil {
		return nil, fmt.Errorf("reading our own answer: %w", err)
	}
	return protojson.Marshal(answer)
}
