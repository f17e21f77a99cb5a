// Package redis reaches Redis servers: one server, the master that sentinels name, a cluster, a ring. Connections, TLS and logins are
// those of go-redis. Of its own are the batcher, which makes one pipeline of all requests that wait for one server, and the placement
// of a ring. A breaker stands in front of each server. Package redis carries scripts and commands and does not know what they mean.
package redis

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
)

// Defaults of Config.
const (
	defaultSilence  = 250 * time.Millisecond
	defaultInFlight = 2
	defaultQueue    = 8192
)

// Config sets up a Client. The zero value works, against a server on this machine.
type Config struct {
	Servers
	Prefix   string         // begins the names of the servers, to distinguish two clients
	Silence  time.Duration  // how long a batch waits for its replies; default 250 ms
	InFlight int            // batches under way to one server at most; default 2
	Queue    int            // requests that may wait for one server; default 8192
	Breaker  breaker.Config // of the breaker in front of each server; OnBreaker takes the place of its OnChange

	OnBreaker func(server string, from, to breaker.State) // called for each change of a server's breaker; must not block
	OnPanic   func(fault any)                             // called after a panic in the background; nil: the panic ends the process
	// OnCall is called after each batch: how many requests and charges it had, how long it took, and the Reason of its first failure.
	OnCall func(server string, requests, charges int, took time.Duration, reason string)
}

// Client is the servers of one Config. It is safe for concurrent use.
type Client struct {
	cfg Config
}

// New begins to connect, and returns at once.
func New(c Config) *Client { panic("redis: soon") }

// Server is where a key is now. Callers do not keep it: a cluster moves keys.
func (c *Client) Server(key string) *Server { panic("redis: soon") }

// Slot is a number that is the same for keys that one script may have together on one server: of a cluster the slot, else 0.
func (c *Client) Slot(key string) int { panic("redis: soon") }

// Servers are those that are known now, at least one.
func (c *Client) Servers() []*Server { panic("redis: soon") }

// Everywhere is where to write what every sidecar reads and belongs to no key: all servers of a ring, which know nothing of each other, else one
// server.
func (c *Client) Everywhere() []*Server { panic("redis: soon") }

// Run sends a cold command, beside the breaker and on connections of its own, to where the key is now; an empty key stands for any
// server. Arguments are strings, numbers or []byte. The reply is a string, an int64, a []any of those, or nil where a value is missing.
// Without a deadline in the context it waits 2 s at most.
func (c *Client) Run(ctx context.Context, key string, args ...any) (any, error) { panic("redis: soon") }

// Ask is Run behind the breaker of the server: it fails at once while that is open, and its result counts there.
func (c *Client) Ask(ctx context.Context, key string, args ...any) (any, error) { panic("redis: soon") }

// Subscribe calls message with each text that is published on a channel, on connections of its own, until stop is called, which waits
// for the end. A lost subscription is made again. gap is called when a subscription begins: what was published before it was missed.
// Of a ring it subscribes to every server. The functions are called from one goroutine per server and must not block for long.
func (c *Client) Subscribe(channel string, message func(text string), gap func()) (stop func()) {
	panic("redis: soon")
}

// Guard runs what reads replies in the background. A panic is given to Config.OnPanic, and does not end the process.
func (c *Client) Guard(run func()) { panic("redis: soon") }

// Ready waits until every server has answered once, or it is known why one does not.
func (c *Client) Ready(ctx context.Context) { panic("redis: soon") }

// Close ends the connections and waits for what runs. Later calls fail.
func (c *Client) Close() { panic("redis: soon") }

// Stats is what a Client counts about itself.
type Stats struct {
	Connections   int64 // open now
	Idle          int64 // of these, not in use
	Opened, Ended int64 // connections so far
	InFlight      int64 // requests in batches that wait for their replies
	Waiting       int64 // requests that are not in a batch yet
	Waited        int64 // calls that waited for a free connection
	Lacked        int64 // of these, calls that got none in time
	Rejected      int64 // requests that were not sent, because too many waited
}

// Stats is what the client has counted so far.
func (c *Client) Stats() Stats { panic("redis: soon") }

// Add adds the numbers of another client.
func (s *Stats) Add(o Stats) { panic("redis: soon") }
