package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

const (
	coldWithin = 2 * time.Second  // for a cold command whose caller set no deadline,
	coldAtMost = 10 * time.Second // and for every one
)

// Server is one server that requests go to, with the breaker in front of it: the only one, the master that the
// sentinels name, one of a ring, or a master of a cluster. It is safe for concurrent use.
type Server struct {
	name      string
	client    *Client
	address   string          // empty: of the master that sentinels name
	hot, cold *goredis.Client // for batches, and for cold commands; nil where a cluster is not known yet
	guard     *breaker.Breaker
	batcher   *batcher
	replicas  replicas
	epoch     atomic.Int64 // grows when the connections so far may lead to a former master
	named     time.Time    // when a cluster last named it; guarded by the cluster's mutex
}

// newServer makes a server. One of a cluster without an address is for servers that are not known yet.
func (c *Client) newServer(name, address string) *Server {
	s := &Server{name: c.cfg.Prefix + name, client: c, address: address}
	guard := c.cfg.Breaker
	if c.cfg.OnBreaker != nil {
		guard.OnChange = func(from, to breaker.State) { c.Guard(func() { c.cfg.OnBreaker(s.name, from, to) }) }
	}
	s.guard = breaker.New(guard)
	if address != "" || c.sentinel != nil {
		hot, cold := s.options(c.cfg.Silence, c.cfg.PoolSize), s.options(coldAtMost, c.cfg.PoolSize)
		hot.MinIdleConns, hot.MaxIdleConns = 2, 4 // so a spare one is ready at once
		cold.MaxIdleConns = 2
		s.hot, s.cold = goredis.NewClient(hot), goredis.NewClient(cold)
	}
	s.batcher = newBatcher(s)
	return s
}

// Name is what metrics and the log call the server.
func (s *Server) Name() string { return s.name }

// Breaker is the breaker in front of the server.
func (s *Server) Breaker() *breaker.Breaker { return s.guard }

// Do puts requests into the next batch, all of them into one, where they run in this order. At most 64 requests and
// 128 charges fit into a batch. It returns at once; each request is signalled on its Done. They belong to the Client
// until then.
func (s *Server) Do(requests ...*Pending) {
	for _, p := range requests {
		p.begin()
	}
	err := breaker.ErrOpen
	if !s.guard.Stops() {
		err = s.batcher.add(time.Now(), requests)
	}
	if err != nil {
		s.end(requests, err)
	}
}

// end signals that requests are over. err is why they were not sent, nil if they were.
func (s *Server) end(requests []*Pending, err error) {
	for _, p := range requests {
		if err != nil {
			p.Err = err
		}
		if p.finish() && p.Late != nil {
			s.client.Guard(func() { p.Late(p) })
		}
	}
}

// runBatch sends a batch, if the breaker lets it pass, and ends its requests.
func (s *Server) runBatch(batch []*Pending) {
	began, reason := time.Now(), ReasonBreaker
	done, err := s.guard.Allow()
	if err == nil {
		shown := breaker.Failure
		reason = ReasonError // both stay if it panics
		s.client.Guard(func() { shown, reason = s.tryBatch(batch) })
		done(shown)
		switch shown {
		case breaker.Failure:
			s.client.watch.want()
		case breaker.Success:
			s.batcher.learn(batch, time.Now())
		}
	}
	if s.client.cfg.OnCall != nil {
		s.client.Guard(func() { s.client.cfg.OnCall(s.name, len(batch), chargesOf(batch), time.Since(began), reason) })
	}
	s.end(batch, err)
}

// tryBatch sends a batch, and returns what it shows about the server and the reason of the first failure.
func (s *Server) tryBatch(batch []*Pending) (shown breaker.Outcome, reason string) {
	all := s.exchange(context.Background(), commands(batch, s.client.Slot))
	for _, c := range all {
		c.deliver()
	}
	return outcome(all)
}

// Run is Client.Run for this server: for what is asked of each server, as SCAN.
func (s *Server) Run(ctx context.Context, args ...any) (any, error) {
	c := s.command(ctx, -1, args)
	return c.Val(), c.fault()
}

// command sends one cold command.
func (s *Server) command(ctx context.Context, slot int, args []any) *command {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, coldWithin)
		defer cancel()
	}
	c := (&command{slot: slot}).prepare(args)
	s.exchange(ctx, []*command{c})
	return c
}

// guarded sends one cold command behind the breaker. A caller that was in a hurry shows nothing about the server.
func (s *Server) guarded(ctx context.Context, slot int, args []any) (any, error) {
	done, err := s.guard.Allow()
	if err != nil {
		return nil, err
	}
	began, shown := time.Now(), breaker.Failure // also if it panics
	defer func() { done(shown) }()
	c := s.command(ctx, slot, args)
	shown, _ = outcome([]*command{c})
	deadline, ok := ctx.Deadline()
	hurried := ok && deadline.Sub(began) < s.client.cfg.Silence
	if fault := c.fault(); hurried && isTimeout(fault) || errors.Is(fault, context.Canceled) {
		shown = breaker.Neither
	}
	return c.Val(), c.fault()
}

func (s *Server) close() {
	s.batcher.close()
	s.copiedTo(nil)
	for _, client := range s.clients() {
		_ = client.Close()
	}
}

func (s *Server) clients() []*goredis.Client {
	if s.hot == nil {
		return nil
	}
	return []*goredis.Client{s.hot, s.cold}
}

// Ping asks the server for a sign of life, beside the breaker.
func (s *Server) Ping(ctx context.Context) error {
	_, err := s.Run(ctx, "PING")
	return err
}
