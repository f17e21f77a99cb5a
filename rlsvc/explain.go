package rlsvc

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/engine"
)

// ParseJSON reads a RateLimitRequest that is written as JSON, as the door would read it from the wire.
func (s *Service) ParseJSON(body []byte) (*descriptors.Request, error) {
	request := new(ratelimitv3.RateLimitRequest)
	err := protojson.Unmarshal(body, request)
	if err != nil {
		return nil, fmt.Errorf("reading a RateLimitRequest: %w", err)
	}
	wire, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("reading a RateLimitRequest: %w", err)
	}
	m := &Message{share: door.Share{Intake: s.config.Intake}}
	defer m.End()
	err = m.ParseWire(wire)
	return m.Asked(), err
}

// RenderJSON returns the RateLimitResponse to a verdict as JSON.
func (s *Service) RenderJSON(req *descriptors.Request, v *engine.Verdict) (json.RawMessage, error) {
	answer := new(ratelimitv3.RateLimitResponse)
	err := proto.Unmarshal(s.appendAnswer(nil, req, v), answer)
	if err != nil {
		return nil, fmt.Errorf("reading our own answer: %w", err)
	}
	body, err := protojson.Marshal(answer)
	return compact(body), err
}
