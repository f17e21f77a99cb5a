// Package redis reaches Redis servers: one server, the master that sentinels name, a cluster, a ring. Connections,
// TLS and logins are those of go-redis. Of its own are the batcher, which makes one pipeline of all requests that
// wait for one server, and the placement of a ring. A breaker guards each server. Package redis carries
// scripts and commands and does not know what they mean.
package redis

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/spillway-mesh/spillway/breaker"
)

// The breaker in front of each server, in the words of package breaker.
type (
	// BreakerConfig sets up the breakers.
	BreakerConfig = breaker.Config
	// BreakerState is what a breaker does with calls.
	BreakerState = breaker.State
	// BreakerStats is the state of a breaker and its counts.
	BreakerStats = breaker.Stats
)

// The states of a breaker that other rooms ask for.
const (
	BreakerClosed = breaker.Closed // calls pass
	BreakerOpen   = breaker.Open   // no call passes
)

// Config sets up a Client. The zero value works, against a server on this machine.
type Config struct {
	Servers
	Prefix   string         // begins the names of the servers, to distinguish two clients
	Silence  time.Duration  // how long a batch waits for its replies; default 250 ms
	InFlight int            // batches under way to one server at most; default 2
	Queue    int            // requests that may wait for one server; default 8192
	Breaker  breaker.Config // of the breaker in front of each server; OnBreaker takes the place of its OnChange
	Replicas bool           // Look asks replicas of a cluster or of what sentinels watch; false: it finds none

	// called for each change of a server's breaker; must not block
	OnBreaker func(server string, from, to breaker.State)
	OnPanic   func(fault any) // called after a panic in the background; nil: the process ends
	// OnCall is called after each batch: how many requests and charges it had, how long it took, and the Reason of its
	// first failure.
	OnCall func(server string, requests, charges int, took time.Duration, reason string)
}

// Client is the servers of one Config. It is safe for concurrent use.
type Client struct {
	cfg           Config
	fixed         []*Server // unless it is a cluster: the one server, or those of the ring
	hashes        []uint64  // of a ring: of the addresses of its servers
	sentinel      *sentinel // nil without sentinels
	cluster       *cluster  // nil unless it is one
	watch         *watch    // of sentinels or a cluster; else nil
	opened, ended atomic.Int64
}

// New begins to connect, and returns at once.
func New(cfg Config) *Client {
	logging.Disable() // of go-redis: all that it reports arrives as an error and is counted
	cfg.Servers = cfg.Servers.withDefaults()
	cfg.Silence = cmp.Or(cfg.Silence, 250*time.Millisecond)
	cfg.InFlight, cfg.Queue = cmp.Or(cfg.InFlight, MostInFlight), cmp.Or(cfg.Queue, 8192)
	c := &Client{cfg: cfg}
	switch cfg.Kind {
	case Sentinel:
		c.watch, c.sentinel = newWatch(), newSentinel(c)
		c.fixed = []*Server{c.newServer(cfg.Master, "")}
		c.watch.running.Go(func() { c.watch.run(c, c.sentinel.look) })
	case Cluster:
		c.cfg.DB = 0
		c.watch, c.cluster = newWatch(), newCluster(c)
		c.watch.running.Go(func() { c.watch.run(c, c.cluster.look) })
	case Ring:
		for _, address := range cfg.Addresses {
			c.fixed, c.hashes = append(c.fixed, c.newServer(address, address)), append(c.hashes, hash64(address))
		}
	default:
		c.fixed = []*Server{c.newServer(cfg.Addresses[0], cfg.Addresses[0])}
	}
	return c
}

// Server is where a key is now, for an empty key any. Callers do not keep it: a cluster moves keys.
func (c *Client) Server(key string) *Server {
	switch {
	case c.cluster != nil:
		return c.cluster.server(c.Slot(key))
	case len(c.fixed) > 1:
		return c.fixed[heaviest(c.hashes, key)]
	}
	return c.fixed[0]
}

// Slot is a number that is the same for keys that one script may have together on one server: of a cluster the slot,
// -1 for an empty key, else 0.
func (c *Client) Slot(key string) int {
	switch {
	case c.cluster == nil:
		return 0
	case key == "":
		return -1
	}
	return SlotOf(key)
}

// Servers are those that are known now, at least one.
func (c *Client) Servers() []*Server {
	if c.cluster != nil {
		return c.cluster.servers()
	}
	return c.fixed
}

// Everywhere is where to write what every sidecar reads and belongs to no key: all servers of a ring, which know
// nothing of each other, else one server.
func (c *Client) Everywhere() []*Server {
	if c.cluster != nil {
		return []*Server{c.Server("")}
	}
	return c.fixed
}

// Run sends a cold command, beside the breaker and on connections of its own, to where the key is now; an empty key
// means any server. Arguments are strings, numbers or []byte. The reply is a string, an int64, a []any of those,
// or nil where a value is missing. It waits until the context's deadline, 10 s at most; without one for 2 s.
func (c *Client) Run(ctx context.Context, key string, args ...any) (any, error) {
	cold := c.Server(key).command(ctx, c.Slot(key), args)
	return cold.Val(), cold.fault()
}

// Ask is Run behind the breaker of the server: it fails at once while that is open, and its result counts there.
func (c *Client) Ask(ctx context.Context, key string, args ...any) (any, error) {
	return c.Server(key).guarded(ctx, c.Slot(key), args)
}

// Guard runs what reads replies in the background. A panic is given to Config.OnPanic, and does not end the process.
func (c *Client) Guard(run func()) {
	defer func() {
		if c.cfg.OnPanic == nil {
			return
		}
		if fault := recover(); fault != nil {
			c.cfg.OnPanic(fault)
		}
	}()
	run()
}

// Ready waits until every server has answered once, or it is known why one does not.
func (c *Client) Ready(ctx context.Context) {
	if c.watch != nil {
		_ = c.watch.await(ctx)
	}
	var all sync.WaitGroup
	for _, s := range c.Servers() {
		all.Go(func() { c.Guard(func() { _ = s.Ping(ctx) }) }) // calls will show why it does not answer
	}
	all.Wait()
}

// Close ends the connections and waits for what runs. Later calls fail.
func (c *Client) Close() {
	if c.watch != nil {
		c.watch.close()
	}
	if c.sentinel != nil {
		for _, one := range c.sentinel.asked {
			one.Close()
		}
	}
	if c.cluster != nil {
		c.cluster.close()
	}
	for _, s := range c.fixed {
		s.close()
	}
}

// Stats is what clients count about themselves. The zero value has counted none.
type Stats struct {
	Connections int64 `metric:"redis_connections" compat:"redis_pool.cx_active,gauge" help:"Open connections to Redis."`
	Idle        int64 `metric:"redis_connections_idle" help:"Open connections to Redis that are not in use."`
	Opened      int64 `compat:"redis_pool.cx_total" help:"Connections to Redis opened so far."`
	Ended       int64 `compat:"redis_pool.cx_local_close" help:"Connections to Redis closed so far."`
	InFlight    int64 `metric:"redis_in_flight" help:"Requests that wait for a reply of Redis."`
	Waiting     int64 `metric:"redis_waiting" help:"Requests that wait to be sent to Redis."`
	Waited      int64 `metric:"redis_pool_misses_total" help:"Calls that waited for a free connection."`
	Lacked      int64 `metric:"redis_pool_timeouts_total" help:"Calls that got no connection in time."`
	Rejected    int64 `metric:"redis_overload_total" help:"Requests not sent, because too many waited."`
}

// Add adds what a client has counted so far. Of a cluster the last four are those of its present servers.
func (all *Stats) Add(c *Client) {
	all.Opened += c.opened.Load()
	all.Ended += c.ended.Load()
	all.Connections = all.Opened - all.Ended
	for _, s := range c.Servers() {
		s.batcher.count(all)
		for _, client := range s.clients() {
			pool := client.PoolStats()
			all.Idle += int64(pool.IdleConns)
			all.Waited += int64(pool.WaitCount)
			all.Lacked += int64(pool.Timeouts)
		}
	}
}
