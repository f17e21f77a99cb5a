package redis

import (
	"context"
	_ "embed" // for the script
	"errors"
	"maps"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// errNoReplica is why a question has to go to the master.
var errNoReplica = errors.New("no replica of the server is known")

//go:embed linked.lua
var linked string

// replicas are the copies of a server, which only Look asks.
type replicas struct {
	mu   sync.Mutex
	open map[string]*goredis.Client // by address
}

// AsksReplicas reports whether Look finds replicas where there are some.
func (c *Client) AsksReplicas() bool {
	return c.cfg.Replicas && (c.cluster != nil || c.sentinel != nil)
}

// Look runs the script of a request on a replica of the server, beside batches and the breaker, and waits until the
// context's deadline. It fails if the script writes, and where no replica has a link to its master: the server has to
// be asked then. The answer is as old as the replica.
func (s *Server) Look(ctx context.Context, p *Pending) error {
	client := s.replicas.any()
	if client == nil {
		return errNoReplica
	}
	c := &command{script: p.Script, members: []*Pending{p}}
	_ = client.Process(ctx, c.run("EVAL_RO", linked+p.Script.text.(string))) // it has the error
	c.deliver()
	return p.Err
}

// any is a connection to one of the replicas, nil where none is known.
func (r *replicas) any() *goredis.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, client := range r.open {
		return client // Go begins a map at random
	}
	return nil
}

// copiedTo takes in where the replicas are now. A connection is made with the first question.
func (s *Server) copiedTo(addresses []string) {
	r := &s.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.open, func(address string, client *goredis.Client) bool {
		gone := !slices.Contains(addresses, address)
		if gone {
			_ = client.Close()
		}
		return gone
	})
	for _, address := range addresses {
		if r.open[address] != nil || address == "" {
			continue
		}
		if r.open == nil {
			r.open = map[string]*goredis.Client{}
		}
		o := s.client.cfg.options(address, s.client.cfg.Silence, LeastPool)
		o.MaxIdleConns = 1
		if s.client.cluster != nil { // else a replica sends every command on to its master
			o.OnConnect = func(ctx context.Context, c *goredis.Conn) error { return c.ReadOnly(ctx).Err() }
		}
		r.open[address] = goredis.NewClient(o)
	}
}
