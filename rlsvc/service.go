// Package rlsvc speaks Envoy's RateLimitService v3, over gRPC and as /json (an http.Handler).
//
// Requests are read and answers are written as wire bytes, by hand. Over gRPC that takes a codec which recognises
// Message and door.Reply by their methods ParseWire and Wire: the server that Register is given must have one.
package rlsvc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/door"
)

// Config is what a Service needs. Only Engine must be set.
type Config struct {
	Engine door.Decider
	Intake *door.Intake // what messages may bring; nil: each alone is bounded

	LimitHeaders    bool   // add the reference server's three headers to answers
	LimitHeader     string // name of the first; default RateLimit-Limit
	RemainingHeader string // default RateLimit-Remaining
	ResetHeader     string // default RateLimit-Reset
	DynamicMetadata bool   // send the request and the rules' metadata to Envoy's later filters
	// refusals have what their rules' own responses hold, and neither retry-after nor a problem document
	Plain bool
	Quota bool // trees are in quota mode: LimitHeaders single none of them out for being over

	// Now is the clock of domains that send the reset as unix time. Default: time.Now.
	Now func() time.Time
	// OnPanic receives each panic in the door, and each verdict that does not fit its request. Both are answered all
	// the same. It may be called from many goroutines. Default: nothing.
	OnPanic func(fault any)
}

// Service answers RateLimitService calls. Make one with New. Any number of goroutines may use it.
type Service struct {
	config Config
	door   *door.Door
	json   *door.Door // of requests to /json
}

// New makes a service.
func New(config Config) *Service {
	defaults := []struct {
		name  *string
		value string
	}{
		{&config.LimitHeader, "RateLimit-Limit"},
		{&config.RemainingHeader, "RateLimit-Remaining"},
		{&config.ResetHeader, "RateLimit-Reset"},
	}
	for _, d := range defaults {
		if *d.name == "" {
			*d.name = d.value
		}
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.OnPanic == nil {
		config.OnPanic = func(any) {}
	}
	s := &Service{config: config}
	calls := door.Config{
		Name: "rls", Service: ratelimitv3.RateLimitService_ServiceDesc, Method: "ShouldRateLimit",
		Engine: config.Engine,
		Fresh:  s.fresh, Write: s.appendAnswer, Bare: appendBare, OnPanic: config.OnPanic,
	}
	s.door = door.New(calls)
	calls.Name = jsonName
	s.json = door.New(calls)
	return s
}

func (s *Service) fresh() door.Message {
	return &Message{share: door.Share{Intake: s.config.Intake}}
}

// Register adds RateLimitService to a gRPC server. Its codec must know Message and door.Reply.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.door.Register(r) }

// Answer decides the request in the wire bytes and appends the answer's to answer. An error means that the bytes are
// not a RateLimitRequest; anything else gets a decision.
func (s *Service) Answer(ctx context.Context, request, answer []byte) ([]byte, error) {
	return s.door.Answer(ctx, request, answer)
}
