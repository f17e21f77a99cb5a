package extauthz

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// Parse makes of a request what the door would make of it. One without a domain is in the default one.
func (s *Service) Parse(h *HTTP) *descriptors.Request {
	return (&Message{domain: s.config.DefaultDomain}).TakeHTTP(h)
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
