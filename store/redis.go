package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store/denials"
	"github.com/spillway-mesh/spillway/store/leases"
)

// Redis is a Counter on Redis servers, shared by all who use them. Time is the server's. It is safe for concurrent use.
//
// It answers in time whatever the servers do, and starts without them. In front are leases, which spend tokens that were taken ahead, and
// a cache of denials: a counter that is spent is not asked about again before it can have something to give. A reply that comes too late
// for its caller is still read, and handed over as a Late.
type Redis struct {
	main      *redis.Client
	second    *redis.Client    // of limits with a window of at most a second; nil: main
	denials   *denials.Denials // nil: none
	leases    *leases.Leases   // nil: none
	heartbeat *heartbeat       // nil: none
	patience  time.Duration
	now       func() time.Time

	onError func(reason string, err error)
	onLate  func(Late)
	onTrip  func(ctx context.Context, server string, charges int) (ended func(reason string)) // nil: nothing is called

	questions  sync.Pool // *question
	trips      sync.Pool // *trip
	background background
	healing    healing
	pinging    pinging

	sent, undecided, unknown, late, notReturned atomic.Int64
}

// Defaults of RedisConfig.
const (
	defaultPatience      = 100 * time.Millisecond
	defaultDenialEntries = 100_000
)

// NewRedis sets up the store and returns at once; the clients connect in the background.
func NewRedis(c RedisConfig) *Redis {
	c = c.withDefaults()
	r := &Redis{
		main: c.Main, second: c.PerSecond, patience: c.Patience, now: c.Now,
		onError: c.OnError, onLate: c.OnLate, onTrip: c.OnTrip,
	}
	r.background.start(c.OnPanic)
	r.questions.New = func() any { return newQuestion(r) }
	r.trips.New = func() any { return new(trip) }
	if c.DenialEntries > 0 {
		r.denials = denials.New(denials.Config{Entries: c.DenialEntries, Bytes: c.DenialBytes})
	}
	if c.Heartbeat != "" {
		r.heartbeat = newHeartbeat(r.main, c.Heartbeat, r.beatFailed)
		r.background.run(r.heartbeat.run)
	}
	if c.Leases {
		r.leases = leases.New(leases.Config{Live: r.Live})
		r.background.run(r.returnEnded)
	}
	return r
}

func (c RedisConfig) withDefaults() RedisConfig {
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if c.DenialEntries == 0 {
		c.DenialEntries = defaultDenialEntries
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(string, error) {}
	}
	if c.OnPanic == nil {
		c.OnPanic = func(any) {}
	}
	if c.OnLate == nil {
		c.OnLate = func(Late) {}
	}
	return c
}

// Try decides a request by tokens on lease, or by what is known to be spent.
func (r *Redis) Try(request *limit.Request) bool {
	now := r.now()
	return r.leases != nil && r.leases.Spend(request, now) || r.denials != nil && r.denials.Refuse(request, now)
}

// Ask decides requests by their servers. All are sent before one of them waits. That a caller hangs up does not interrupt it.
func (r *Redis) Ask(ctx context.Context, requests ...*limit.Request) {
	if len(requests) == 1 {
		r.begin(ctx, requests[0], false).finish(ctx)
		return
	}
	questions := make([]*question, len(requests))
	for i, request := range requests {
		questions[i] = r.begin(ctx, request, false)
	}
	for _, q := range questions {
		q.finish(ctx)
	}
}

// Peek always asks the servers. What is on lease here is returned first, so that it counts as left.
func (r *Redis) Peek(ctx context.Context, request *limit.Request) {
	r.begin(ctx, request, true).finish(ctx)
}

// Reset forgets the counters of these keys, and the penalties. It waits as long as the context allows, and repeating it does no harm.
func (r *Redis) Reset(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	var all []string
	for _, key := range keys {
		all = append(append(all, key), limit.PunishKeys(&limit.Charge{PenaltyKey: key})...)
	}
	r.Drop(keys)
	var failed error
	for _, c := range r.clients() {
		failed = errors.Join(failed, unlink(ctx, c, all))
	}
	r.Drop(keys) // what came meanwhile may be from before
	if failed != nil {
		return fmt.Errorf("reset %d counters: %w", len(keys), failed)
	}
	return nil
}

// unlink removes keys wherever they live, those of one server and slot in one command.
func unlink(ctx context.Context, client *redis.Client, keys []string) error {
	commands := map[home][]any{}
	for _, key := range keys {
		h := home{client.Server(key), client.Slot(key)}
		if commands[h] == nil {
			commands[h] = []any{"UNLINK"}
		}
		commands[h] = append(commands[h], key)
	}
	var failed error
	for _, words := range commands {
		_, err := client.Run(ctx, words[1].(string), words...)
		failed = errors.Join(failed, err)
	}
	return failed
}

// Forget drops what is known of all counters and returns what is on lease. Call it when the rules change: what was spent may have room now.
func (r *Redis) Forget() {
	if r.leases != nil {
		r.sendBack(r.leases.Clear())
	}
	if r.denials != nil {
		r.denials.Clear(r.now())
	}
}

// Drop forgets what is known about the counters of these keys, and what is on lease of them, because they were changed elsewhere.
func (r *Redis) Drop(keys []string) {
	if r.leases != nil {
		r.leases.End(keys)
	}
	if r.denials != nil {
		r.denials.Forget(keys, r.now())
	}
}

// Stats is what the store has counted so far.
func (r *Redis) Stats() RedisStats {
	s := RedisStats{Calls: CallStats{
		Sent: r.sent.Load(), Undecided: r.undecided.Load(), Unknown: r.unknown.Load(), Late: r.late.Load(),
		Healed: r.healing.healed.Load(), NotReturned: r.notReturned.Load(),
	}}
	for _, c := range r.clients() {
		s.Redis.Add(c.Stats())
	}
	for _, server := range r.servers() {
		s.Servers = append(s.Servers, ServerStats{server.Name(), server.Breaker().Stats()})
	}
	if r.denials != nil {
		s.Denials = r.denials.Stats()
	}
	if r.leases != nil {
		s.Leases = r.leases.Stats()
	}
	return s
}

// Client is how the servers of all limits are reached, for others that keep something beside the counters.
func (r *Redis) Client() *redis.Client { return r.main }

// Ready waits until calls can be sent to every server, or it is known that they cannot, or the context ends.
func (r *Redis) Ready(ctx context.Context) {
	for _, c := range r.clients() {
		c.Ready(ctx)
	}
}

// Breaker is the state of the breaker that keeps most away.
func (r *Redis) Breaker() breaker.State {
	worst := breaker.Closed
	for _, server := range r.servers() {
		worst = max(worst, server.Breaker().State())
	}
	return worst
}

// clients are the one of all limits, and that of limits by the second if there is one.
func (r *Redis) clients() []*redis.Client {
	if r.second == nil {
		return []*redis.Client{r.main}
	}
	return []*redis.Client{r.main, r.second}
}

// servers are all that are known, by name.
func (r *Redis) servers() []*redis.Server {
	var all []*redis.Server
	for _, c := range r.clients() {
		all = append(all, c.Servers()...)
	}
	slices.SortFunc(all, func(a, b *redis.Server) int { return cmp.Compare(a.Name(), b.Name()) })
	return all
}

// Close returns what is on lease, ends the connections and waits for what runs in the background. Requests that come later are undecided.
func (r *Redis) Close() error {
	r.background.end()
	if r.leases != nil {
		r.returnAll()
	}
	r.background.running.Wait()
	for _, c := range r.clients() {
		c.Close()
	}
	return nil
}
