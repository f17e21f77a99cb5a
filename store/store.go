// Package store is where counts are kept. Redis is the store that sidecars share; its denials and leases, and the store
// in memory, are packages below it. A store answers per charge: decided, or undecided with a reason. Being limited is
// never an error. All charges of one request are decided all or nothing, as package limit specifies, and none is sent
// again after an outcome that is not known, so a decision executes at most once.
package store

import (
	"cmp"
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store/denials"
	"github.com/spillway-mesh/spillway/store/leases"
)

// Counter decides requests. A request belongs to its caller again once a method has returned. It is safe for
// concurrent use.
type Counter interface {
	// Try decides a request without waiting, or changes nothing and reports false.
	Try(r *limit.Request) bool

	// Ask decides requests, each of which waits until its Due at most. A charge that could not be decided is
	// Undecided with its Reason. Refusals by rules with a penalty are recorded.
	Ask(ctx context.Context, requests ...*limit.Request)

	// Peek answers what is left, for charges with Op Peek. What is known here answers only where the store does not.
	Peek(ctx context.Context, r *limit.Request)

	// Reset makes the counters of these keys full, and ends the cool-downs of these keys.
	Reset(ctx context.Context, keys []string) error
}

// RedisConfig sets up a Redis. Main is needed, the rest may be zero. No callback may block.
type RedisConfig struct {
	Main      *redis.Client // where counters are kept; Close closes it, and its OnPanic gets panics in the background
	PerSecond *redis.Client // likewise, of limits with a window of at most a second; default Main

	Patience      time.Duration    // longest wait of one request; default 100 ms
	DenialEntries int              // spent counters remembered; default 100,000, negative: none
	DenialBytes   int64            // memory that they take at most; 0: no bound
	Leases        bool             // tokens of hot counters are taken ahead; false: each charge is made on a server
	Heartbeat     string           // key under which sidecars that share this store count each other; empty: not
	Now           func() time.Time // default time.Now, of which only differences count

	OnError func(reason string, err error) // called for each request or part that stayed undecided
	// OnLate is called with each request, or part of one, that ends after its caller left. With an error it stays
	// undecided. It has the Fate of the whole request, and belongs to the callee. Nil: its Fate gets the reply.
	OnLate func(part *limit.Request, err error)
	// OnTrip is called before each request, or part of one, goes to a server. What it returns, unless nil, is called
	// when it is over, with the reason why it stayed undecided or nothing.
	OnTrip func(ctx context.Context, server string, charges int) (ended func(reason string))
}

// RedisStats is what a Redis counts about itself.
type RedisStats struct {
	Redis   redis.Stats   // of the connections to all servers
	Servers []ServerStats // one for each server that is known
	Calls   CallStats
	Denials denials.Stats
	Leases  leases.Stats
}

// ServerStats is what is known about one server.
type ServerStats struct {
	Name    string             `label:"shard"` // its address, or the name of the master
	Breaker redis.BreakerStats // of the breaker in front of it
}

// CallStats counts requests to servers; one over several servers or slots counts for each part.
type CallStats struct {
	Sent        int64 `metric:"redis_requests_total" help:"Requests to Redis, with those its breaker or queue kept."`
	Undecided   int64 `metric:"redis_undecided_total" help:"Requests without a decision of Redis."`
	Unknown     int64 `metric:"redis_unknown_total" help:"Requests that may have charged: their reply was lost."`
	Late        int64 `metric:"redis_late_total" help:"Requests whose reply came after the failure policy decided."`
	Healed      int64 `metric:"redis_healed_total" help:"Counters with a value that no limit wrote, deleted."`
	Copied      int64 `metric:"redis_replica_answers_total" help:"Questions that replicas answered."`
	NotCopied   int64 `metric:"redis_replica_misses_total" help:"Questions that replicas left to their masters."`
	NotReturned int64 `metric:"redis_not_returned_total" help:"Tokens that could not be given back; time does."`
}

func (c RedisConfig) withDefaults() RedisConfig {
	c.PerSecond = cmp.Or(c.PerSecond, c.Main)
	c.Patience = cmp.Or(c.Patience, 100*time.Millisecond)
	c.DenialEntries = cmp.Or(c.DenialEntries, 100_000)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(string, error) {}
	}
	if c.OnLate == nil {
		c.OnLate = func(part *limit.Request, err error) {
			if err == nil {
				part.Fate.Reply(part)
			}
		}
	}
	return c
}
