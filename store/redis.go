package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
)

// Defaults of RedisConfig.
const (
	defaultAddress     = "localhost:6379"
	defaultPoolSize    = 32
	defaultMinIdle     = 4
	defaultDialTimeout = 500 * time.Millisecond
	defaultBudget      = 10 * time.Millisecond
	defaultInFlight    = 2048
)

// RedisConfig sets up a Redis. The zero value works, against a server on this machine.
type RedisConfig struct {
	Servers            // where counts are kept
	PerSecond *Servers // where those of limits with a window of at most a second are kept; nil: with the others

	Budget      time.Duration // longest wait of one decision; default 10 ms, and never above 80 % of what is left to the caller
	MaxInFlight int           // calls at once; default 2048. Further ones are undecided at once

	DenialEntries int              // spent counters remembered; default 100,000, negative: none
	Now           func() time.Time // default time.Now; only differences count

	Breaker breaker.Config // of the breaker in front of each shard; the zero value has one. OnBreaker takes the place of its OnChange

	OnError   func(reason string, err error)                            // called for each call that stayed undecided, with one of the reasons; must not block
	OnBreaker func(shard string, from, to breaker.State, reason string) // called for each change of a shard's breaker; must not block
}

// RedisStats is what a Redis counts about itself.
type RedisStats struct {
	Trips         int64 // calls of the script that were sent
	Undecided     int64 // of these, or instead of these: calls without a decision
	ScriptsLoaded int64 // calls that found the server without the script and brought it along
	InFlight      int64 // calls waiting for a reply now

	DenialEntries int64 // spent counters remembered now
	DenialHits    int64 // charges refused without asking
	DenialDrops   int64 // spent counters forgotten before their time, because there were more than DenialEntries

	PoolHits, PoolMisses, PoolTimeouts uint32 // how calls found a connection: a ready one, a new one, none
	ConnsTotal, ConnsIdle, ConnsStale  uint32 // connections: open, idle, closed so far for their age or state

	Breaker breaker.Stats // of the breaker in front of the server
}

// Redis keeps counts in one Redis server, shared by all who use it. Time is the server's. It is safe for concurrent use.
//
// It answers within its budget whatever the server does, and starts without one. While the server fails, a breaker keeps
// calls away from it: they are undecided at once. In front is a cache of denials: a counter
// that is spent is not asked again before it can have something to give.
type Redis struct {
	client  *redis.Client
	dialer  *dialer
	budget  time.Duration
	dialing time.Duration
	flight  int64
	onError func(reason string, err error)
	breaker *breaker.Breaker
	denials *denials // nil: none
	now     func() time.Time
	scratch sync.Pool // *trip
	warmer  warmer
	pulse   pulse

	trips     atomic.Int64
	undecided atomic.Int64
	loaded    atomic.Int64
	inFlight  atomic.Int64
}

// NewRedis sets up the store and returns at once: it connects in the background and whenever it has to.
func NewRedis(c RedisConfig) *Redis {
	c = c.withDefaults()
	quiet()
	options := c.options()
	guard := breaker.New(c.Breaker)
	dialer := newDialer(options, guard.Nudge)
	options.Dialer = dialer.connect
	r := &Redis{
		client: redis.NewClient(options), dialer: dialer, budget: c.Budget, dialing: c.DialTimeout, flight: int64(c.MaxInFlight),
		onError: c.OnError, now: c.Now, breaker: guard,
	}
	if c.DenialEntries > 0 {
		r.denials = newDenials(c.DenialEntries, c.Now)
	}
	r.scratch.New = func() any { return new(trip) }
	r.warmer.start(r.client, max(1, min(c.MinIdle, c.PoolSize/2)), c.DialTimeout)
	return r
}

func (c RedisConfig) withDefaults() RedisConfig {
	if c.Network == "" {
		c.Network = "tcp"
	}
	if len(c.Addresses) == 0 {
		c.Addresses = []string{defaultAddress}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(string, error) {}
	}
	c.PoolSize = positive(c.PoolSize, defaultPoolSize)
	c.MinIdle = min(positive(c.MinIdle, defaultMinIdle), c.PoolSize)
	c.DialTimeout = positive(c.DialTimeout, defaultDialTimeout)
	c.Budget = positive(c.Budget, defaultBudget)
	c.MaxInFlight = positive(c.MaxInFlight, defaultInFlight)
	if c.DenialEntries == 0 {
		c.DenialEntries = defaultDenialEntries
	}
	return c
}

// positive is n, or the default when n says nothing.
func positive[T int | time.Duration](n, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return n
}

// options turns off all that the client library would do behind our back: retries after an unknown outcome, several
// dials per request, a second pool, raised timeouts during maintenance. Its own timeouts are those of a greeting; what a
// request may wait is the deadline of its context.
func (c RedisConfig) options() *redis.Options {
	return &redis.Options{
		Network: c.Network, Addr: c.Addresses[0], Username: c.Username, Password: c.Password, DB: c.DB, TLSConfig: c.TLS,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              c.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              max(c.DialTimeout, c.Budget),
		WriteTimeout:             max(c.DialTimeout, c.Budget),
		PoolTimeout:              max(c.DialTimeout, c.Budget),
		PoolSize:                 c.PoolSize,
		MinIdleConns:             c.MinIdle,
		PipelinePoolSize:         -1,
		ConnMaxIdleTime:          5 * time.Minute,
		ConnMaxLifetime:          30 * time.Minute,
		ConnMaxLifetimeJitter:    5 * time.Minute,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Spend decides all charges in one call of one script, all or nothing as package limit says, and fills decisions, which
// must be as long as charges. A charge that the server could not decide in time is Undecided with its Reason. What is
// known to be spent is refused without a call. That the caller hangs up does not interrupt it; the deadline does.
func (r *Redis) Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	t := r.scratch.Get().(*trip)
	t.charges, t.decisions = charges, decisions
	if r.denials == nil {
		r.call(ctx, t)
	} else {
		r.spendBehindDenials(ctx, t)
	}
	r.scratch.Put(t.reset())
}

// Usage answers what is left on each charge's counter, takes nothing, and always asks the server.
func (r *Redis) Usage(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	if len(charges) == 0 {
		return
	}
	t := r.scratch.Get().(*trip)
	t.asked = peeks(t.asked[:0], charges)
	t.charges, t.decisions = t.asked, decisions
	r.call(ctx, t)
	r.scratch.Put(t.reset())
}

// Reset forgets the counters of these keys, which makes them full. It waits as long as a dial may take, not the budget:
// it is an operator's command and repeating it does no harm.
func (r *Redis) Reset(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.dialing)
	defer cancel()
	err := r.client.Unlink(ctx, keys...).Err()
	if r.denials != nil {
		for _, key := range keys {
			r.denials.forget(key)
		}
	}
	if err != nil {
		return fmt.Errorf("reset %d counters: %w", len(keys), err)
	}
	return nil
}

// Forget clears the cache of denials. Call it when the rules change: what was spent may have room now.
func (r *Redis) Forget() {
	if r.denials != nil {
		r.denials.clear()
	}
}

// Stats is what the store has counted so far.
func (r *Redis) Stats() RedisStats {
	pool := r.client.PoolStats()
	s := RedisStats{
		Trips: r.trips.Load(), Undecided: r.undecided.Load(), ScriptsLoaded: r.loaded.Load(), InFlight: r.inFlight.Load(),
		PoolHits: pool.Hits, PoolMisses: pool.Misses, PoolTimeouts: pool.Timeouts,
		ConnsTotal: pool.TotalConns, ConnsIdle: pool.IdleConns, ConnsStale: pool.StaleConns,
		Breaker: r.breaker.Stats(),
	}
	if r.denials != nil {
		s.DenialEntries, s.DenialHits, s.DenialDrops = r.denials.entries.Load(), r.denials.hits.Load(), r.denials.drops.Load()
	}
	return s
}

// Breaker is the state of the breaker in front of the server.
func (r *Redis) Breaker() breaker.State { return r.breaker.State() }

// Close ends the connections and waits for what runs in the background. Calls that come later are undecided.
func (r *Redis) Close() error {
	err := r.client.Close()
	r.dialer.stop()
	r.warmer.stop()
	if err != nil {
		return fmt.Errorf("close the connections to redis: %w", err)
	}
	return nil
}
