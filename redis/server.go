package redis

import (
	"context"

	"github.com/spillway-mesh/spillway/breaker"
)

// Server is one server that requests go to, with the breaker in front of it: the only one, the master that the sentinels name, one of a
// ring, or a master of a cluster. It is safe for concurrent use.
type Server struct{}

// Name is what metrics and the log call the server.
func (s *Server) Name() string { panic("redis: soon") }

// Breaker is the breaker in front of the server.
func (s *Server) Breaker() *breaker.Breaker { panic("redis: soon") }

// Do puts requests into the next batch, all of them into one, where they run in this order. At most 64 requests and 128 charges fit into
// a batch. It returns at once; each request is signalled on its Done. They belong to the Client until then.
func (s *Server) Do(requests ...*Pending) { panic("redis: soon") }

// Run is Client.Run for this server: for what is asked of each server, as SCAN.
func (s *Server) Run(ctx context.Context, args ...any) (any, error) { panic("redis: soon") }

// Ask is Client.Ask for this server.
func (s *Server) Ask(ctx context.Context, args ...any) (any, error) { panic("redis: soon") }

// Ping asks the server for a sign of life, beside the breaker.
func (s *Server) Ping(ctx context.Context) error { panic("redis: soon") }

// About is what a server is.
type About struct {
	Version string // of Redis, or the one that a Valkey stands for
	Valkey  string // version of Valkey; empty: it is a Redis
	Mode    string // standalone, sentinel or cluster
}

// About asks the server what it is.
func (s *Server) About(ctx context.Context) (About, error) { panic("redis: soon") }
