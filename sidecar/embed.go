package sidecar

import (
	"context"
	"net"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/sidecar/settings"
)

// World is what a sidecar has in place of this machine's network. The zero value is the machine's own.
type World struct {
	// Dial connects to Redis.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen opens the TCP ports.
	Listen func(network, address string) (net.Listener, error)
}

// NewIn is New in a world of the caller's.
func NewIn(world World, cfg settings.Config) (*Sidecar, error) { return assemble(cfg, world, nil) }

// ShouldRateLimit decides the RateLimitRequest in the wire bytes and appends the answer's to answer, as the method over
// gRPC does. It is for a program that has the sidecar in itself, and does not need Run.
func (s *Sidecar) ShouldRateLimit(ctx context.Context, request, answer []byte) ([]byte, error) {
	return s.serving.rls.Answer(ctx, request, answer)
}

// Check decides the CheckRequest in the wire bytes and appends the answer's to answer, as the method over gRPC does.
func (s *Sidecar) Check(ctx context.Context, request, answer []byte) ([]byte, error) {
	return s.serving.authz.Answer(ctx, request, answer)
}

// UseRules takes a load of the rules, as one of files: all of it, or nothing.
func (s *Sidecar) UseRules(load rules.Load) { s.publish(fromFiles, load) }
