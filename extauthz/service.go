// Package extauthz speaks Envoy's ext_authz v3.
//
// Requests are read and answers are written as wire bytes, by hand. Over gRPC that takes a codec which recognises
// Message and Reply by their methods ParseWire and AppendWire: the server that Register is given must have one.
//
// Beside the decision an answer carries dynamic metadata, which Envoy keeps under envoy.filters.http.ext_authz for later
// filters and its access log, and only where there is something to tell: `outcome` (refused, blocked, malformed, or
// shadowed when the whole sidecar refuses nothing), `rule` (the name of the rule that did it) and `degraded` (why the
// shared store did not decide). Nothing in it names the client.
package extauthz

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// Decider decides. It is engine.Engine, and a script in tests. Decide overwrites the verdict and keeps neither argument.
type Decider interface {
	Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict)
}

// Config is what a Service needs. Only Engine must be set.
type Config struct {
	Engine Decider

	// DefaultDomain is the domain of requests whose route has no context extension `domain`. Default: the domain without
	// a name, which no file has.
	DefaultDomain string

	// Now is the clock of domains that tell the reset as unix time. Default: time.Now.
	Now func() time.Time

	// OnPanic is told of each panic in the door, which is answered all the same. It may be called from many goroutines.
	// Default: nothing.
	OnPanic func(fault any)
}

// Service answers Check calls. Make one with New. Any number of goroutines may use it.
type Service struct {
	config Config
	calls  sync.Pool // of *call
	write  func(b []byte, req *descriptors.Request, v *engine.Verdict) []byte
}

// New makes a service.
func New(config Config) *Service {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.OnPanic == nil {
		config.OnPanic = func(any) {}
	}
	s := &Service{config: config, calls: sync.Pool{New: func() any { return new(call) }}}
	s.write = s.appendAnswer
	return s
}

// Reply is an answer as the gRPC codec takes it.
type Reply struct{ wire []byte }

// AppendWire appends the answer's wire bytes to b. With a nil b it returns the reply's own, which nobody changes any
// more.
func (r *Reply) AppendWire(b []byte) []byte {
	if b == nil {
		return r.wire
	}
	return append(b, r.wire...)
}

// call is the memory of one call, used again by later ones.
type call struct {
	message Message
	verdict engine.Verdict
	wire    []byte // the answer, before it is copied out
	spoilt  bool   // something panicked: nobody knows who still holds this memory
}

func (s *Service) take() *call { return s.calls.Get().(*call) }

// give keeps the call's memory for another one, unless it is too much or was spoilt.
func (s *Service) give(c *call) {
	if c.spoilt || c.message.large() || cap(c.wire) > keepBytes {
		return
	}
	c.message.reset()
	empty(&c.verdict)
	s.calls.Put(c)
}

// empty clears the verdict and keeps its memory.
func empty(v *engine.Verdict) {
	v.Match.Reset()
	*v = engine.Verdict{Statuses: v.Statuses[:0], Decisions: v.Decisions[:0], Match: v.Match}
}

// The service as gRPC knows it. Metadata names the generated file, which authv3 has registered, so that reflection can
// show it.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: authv3.Authorization_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Check", Handler: check}},
	Metadata:    authv3.Authorization_ServiceDesc.Metadata,
}

// Register adds the Authorization service to a gRPC server. Its codec must know Message and Reply.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(&serviceDesc, s) }

// check is the gRPC handler. It fails only when the message cannot be decoded, or when an interceptor does.
func check(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (reply any, err error) {
	s := srv.(*Service)
	c := s.take()
	defer s.give(c)
	defer func() {
		if fault := recover(); fault != nil {
			reply, err = s.caught(c, fault), nil
		}
	}()
	err = dec(&c.message)
	if err != nil {
		return nil, err
	}
	if interceptor == nil {
		return s.reply(ctx, c), nil
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: authv3.Authorization_Check_FullMethodName}
	handler := func(ctx context.Context, _ any) (any, error) { return s.reply(ctx, c), nil }
	return interceptor(ctx, &c.message, info, handler)
}

// caught answers a call that a panic outside of Decide and of rendering has broken off: by the verdict, if there is one.
func (s *Service) caught(c *call, fault any) *Reply {
	c.spoilt = true
	s.config.OnPanic(fault)
	return &Reply{wire: appendBare(nil, &c.verdict)}
}

func (s *Service) reply(ctx context.Context, c *call) *Reply {
	c.wire = s.answer(ctx, c, c.wire[:0])
	wire := make([]byte, len(c.wire))
	copy(wire, c.wire)
	return &Reply{wire: wire}
}

// Answer decides the request in the wire bytes and appends the answer's to answer. An error means that the bytes are no
// CheckRequest; anything else gets a decision.
func (s *Service) Answer(ctx context.Context, request, answer []byte) ([]byte, error) {
	c := s.take()
	defer s.give(c)
	err := c.message.ParseWire(request)
	if err != nil {
		return answer, err
	}
	return s.answer(ctx, c, answer), nil
}

// answer decides the call's message and appends the answer.
func (s *Service) answer(ctx context.Context, c *call, b []byte) []byte {
	if c.message.Request.Domain == "" {
		c.message.Request.Domain = s.config.DefaultDomain
	}
	s.decide(ctx, c)
	return s.render(c, b)
}

// decide fills the call's verdict. After a panic it is empty, which admits.
func (s *Service) decide(ctx context.Context, c *call) {
	defer func() {
		if fault := recover(); fault != nil {
			c.spoilt = true
			c.verdict = engine.Verdict{}
			s.config.OnPanic(fault)
		}
	}()
	s.config.Engine.Decide(ctx, &c.message.Request, &c.verdict)
}

// render appends the answer. After a panic the codes alone are appended, for the decision stands.
func (s *Service) render(c *call, b []byte) (out []byte) {
	start := len(b)
	defer func() {
		if fault := recover(); fault != nil {
			c.spoilt = true
			s.config.OnPanic(fault)
			out = appendBare(b[:start:start], &c.verdict)
		}
	}()
	return s.write(b, &c.message.Request, &c.verdict)
}
