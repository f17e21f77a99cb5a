// Package extauthz speaks Envoy's ext_authz v3.
//
// Requests are read and answers are written as wire bytes, by hand. Over gRPC that takes a codec which recognises
// Message and door.Reply by their methods ParseWire and Wire: the server that Register is given must have one.
//
// Beside the decision an answer carries dynamic metadata, which Envoy keeps under envoy.filters.http.ext_authz for
// later filters and its access log, and only those that apply: `outcome` (refused, blocked, malformed, or shadowed when
// the whole sidecar refuses nothing), `rule` (the name of the rule that did it) and `degraded` (why the shared store
// did not decide). Nothing in it names the client.
package extauthz

import (
	"context"
	"time"

	"google.golang.org/grpc"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/door"
)

// Config is what a Service needs. Only Engine must be set.
type Config struct {
	Engine door.Decider
	Intake *door.Intake // what messages may bring; nil: each alone is bounded

	// DefaultDomain is the domain of requests whose route has no context extension `domain`. Default: the domain
	// without a name, which is in no file.
	DefaultDomain string

	// Now is the clock of domains that send the reset as unix time. Default: time.Now.
	Now func() time.Time

	// OnPanic gets each panic in the door. The call is answered all the same. It may be called from many goroutines.
	// Default: nothing.
	OnPanic func(fault any)
}

// Service answers Check calls. Make one with New. Any number of goroutines may use it.
type Service struct {
	config Config
	door   *door.Door
}

// New makes a service.
func New(config Config) *Service {
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &Service{config: config}
	s.door = door.New(door.Config{
		Name: "ext_authz", Service: authv3.Authorization_ServiceDesc, Method: "Check",
		Engine: config.Engine, Fresh: s.fresh,
		Write: s.appendAnswer, Bare: appendBare, OnPanic: config.OnPanic,
	})
	return s
}

func (s *Service) fresh() door.Message {
	return &Message{share: door.Share{Intake: s.config.Intake}, domain: s.config.DefaultDomain}
}

// Register adds the Authorization service to a gRPC server. Its codec must know Message and door.Reply.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.door.Register(r) }

// Answer decides the request in the wire bytes and appends the answer's to answer. It returns an error only for bytes
// that cannot be read as a CheckRequest.
func (s *Service) Answer(ctx context.Context, request, answer []byte) ([]byte, error) {
	return s.door.Answer(ctx, request, answer)
}
