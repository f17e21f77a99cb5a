package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store/denials"
	"github.com/spillway-mesh/spillway/store/leases"
)

// Redis is a Counter on Redis servers, shared by all who use them. Time is the server's. It is safe for concurrent
// use. It answers in time even if servers hang, and starts without them. In front are leases, which spend tokens
// that were taken ahead, and denials: a counter that is spent is not asked about before it can have something to give.
type Redis struct {
	cfg       RedisConfig
	clients   []*redis.Client // Main and, if it is another one, PerSecond
	denials   *denials.Denials
	leases    *leases.Leases
	heartbeat *heartbeat
	questions sync.Pool // *question

	stop    context.CancelFunc // ends what runs in the background
	running sync.WaitGroup
	healing sync.Mutex // held by the request that heals

	sent, undecided, unknown, late, healed, notReturned, copied, notCopied atomic.Int64
}

// NewRedis sets up the store and returns at once; the clients connect in the background.
func NewRedis(c RedisConfig) *Redis {
	c = c.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	r := &Redis{cfg: c, stop: stop}
	r.clients = slices.Compact([]*redis.Client{c.Main, c.PerSecond})
	r.denials = denials.New(c.DenialEntries, c.DenialBytes)
	r.leases = leases.New(r.Live)
	r.heartbeat = &heartbeat{store: r, id: rand.Text()}
	r.questions.New = func() any { return &question{store: r, timer: time.NewTimer(0)} }
	if c.Leases {
		r.running.Go(func() {
			r.every(ctx, lookEvery, func() { r.sendBack(r.leases.Ended(c.Now()), 0) })
		})
	}
	if c.Heartbeat != "" {
		r.running.Go(func() {
			h := r.heartbeat
			r.every(ctx, beatEvery, func() { h.take(h.show(ctx, beatEvery, deadAfter)) })
			h.show(context.Background(), leaveIn, 0) // others stop counting this sidecar at once
		})
	}
	return r
}

// every runs something at once and then each time a period has passed, until the context ends.
func (r *Redis) every(ctx context.Context, period time.Duration, run func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.cfg.Main.Guard(run)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// Try decides a request by tokens on lease, or by what is known to be spent.
func (r *Redis) Try(request *limit.Request) bool {
	now := r.cfg.Now()
	return r.leases.Spend(request, now) || r.denials.Refuse(request, now)
}

// Ask decides requests by their servers. All are sent before one of them waits. A caller that hangs up does not
// interrupt it.
func (r *Redis) Ask(ctx context.Context, requests ...*limit.Request) {
	questions := make([]*question, 0, 8) // on the stack
	for _, request := range requests {
		questions = append(questions, r.begin(ctx, request, deciding))
	}
	for _, q := range questions {
		q.finish(ctx)
	}
}

// Peek always asks the servers. What is on lease here is returned first, so that it counts as left. With MayLag it asks
// replicas, where they are in use, and returns nothing; what they leave open the servers answer.
func (r *Redis) Peek(ctx context.Context, request *limit.Request) {
	if request.MayLag && r.askReplicas(ctx, request) {
		return
	}
	r.begin(ctx, request, peeking).finish(ctx)
}

// Reset forgets the counters of these keys, and the penalties. It waits as long as the context allows, and repeating
// it is harmless.
func (r *Redis) Reset(ctx context.Context, keys []string) error {
	r.Drop(keys)
	defer r.Drop(keys) // what was learned meanwhile may be from before
	var all []string
	for _, key := range keys {
		all = append(append(all, key), limit.PunishKeys(&limit.Charge{PenaltyKey: key})...)
	}
	for _, c := range r.clients {
		if err := unlink(ctx, c, all); err != nil {
			return fmt.Errorf("reset %d counters: %w", len(keys), err)
		}
	}
	return nil
}

// unlink removes keys, as many as it can.
func unlink(ctx context.Context, client *redis.Client, keys []string) (failed error) {
	for _, key := range keys {
		_, err := client.Run(ctx, key, "UNLINK", key)
		if err != nil {
			failed = err
		}
	}
	return failed
}

// Forget drops what is known of all counters and returns what is on lease. Call it when the rules change: what was
// spent may have room now.
func (r *Redis) Forget() {
	r.sendBack(r.leases.Clear(), 0)
	r.denials.Clear(r.cfg.Now())
}

// Drop forgets what is known about the counters of these keys, and what is on lease of them: they were changed
// elsewhere.
func (r *Redis) Drop(keys []string) {
	r.leases.End(keys)
	r.denials.Forget(keys, r.cfg.Now())
}

// Stats is what the store has counted so far.
func (r *Redis) Stats() RedisStats {
	s := RedisStats{Denials: r.denials.Stats(), Leases: r.leases.Stats(), Calls: CallStats{
		Sent: r.sent.Load(), Undecided: r.undecided.Load(), Unknown: r.unknown.Load(), Late: r.late.Load(),
		Healed: r.healed.Load(), NotReturned: r.notReturned.Load(),
		Copied: r.copied.Load(), NotCopied: r.notCopied.Load(),
	}}
	for _, c := range r.clients {
		s.Redis.Add(c)
	}
	for _, server := range r.servers() {
		s.Servers = append(s.Servers, ServerStats{server.Name(), server.Breaker().Stats()})
	}
	return s
}

// Client is how the servers of all limits are reached, for others that keep something beside the counters.
func (r *Redis) Client() *redis.Client { return r.cfg.Main }

// servers are all that are known, by name.
func (r *Redis) servers() (all []*redis.Server) {
	for _, c := range r.clients {
		all = append(all, c.Servers()...)
	}
	slices.SortFunc(all, func(a, b *redis.Server) int { return cmp.Compare(a.Name(), b.Name()) })
	return all
}

// Ready waits until every server has answered, or it is known why one does not, or the context ends.
func (r *Redis) Ready(ctx context.Context) {
	for _, c := range r.clients {
		c.Ready(ctx)
	}
}

// Breaker is the state of the breaker that stops most.
func (r *Redis) Breaker() redis.BreakerState {
	worst := redis.BreakerClosed
	for _, server := range r.servers() {
		worst = max(worst, server.Breaker().State())
	}
	return worst
}

// Ping asks all servers for a sign of life, and returns why there was none, as one of the reasons, or nothing. Where
// there are several servers, those that do not answer are named.
func (r *Redis) Ping(ctx context.Context) string {
	servers := r.servers()
	reasons := pingAll(ctx, servers)
	for i, server := range servers {
		if reasons[i] != "" && len(servers) > 1 {
			reasons[i] = server.Name() + " " + reasons[i]
		}
	}
	return strings.Join(slices.DeleteFunc(reasons, func(s string) bool { return s == "" }), ", ")
}

// Away asks all servers of Main for a sign of life, and returns why there was none, or nothing where one answers.
func (r *Redis) Away(ctx context.Context) string {
	reasons := pingAll(ctx, r.cfg.Main.Servers())
	if slices.Contains(reasons, "") {
		return ""
	}
	return reasons[0]
}

// pingAll asks servers for a sign of life, all at the same time, and returns the reason of each without one.
func pingAll(ctx context.Context, servers []*redis.Server) []string {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // more than a decision has: a busy server is not lost
	defer cancel()
	reasons := make([]string, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { reasons[i] = redis.Reason(server.Ping(ctx)) })
	}
	all.Wait()
	return reasons
}

// Close returns what is on lease, ends the connections and waits for what runs in the background. Requests that come
// later are undecided.
func (r *Redis) Close() error {
	r.stop()
	r.sendBack(r.leases.Clear(), returnWithin)
	r.running.Wait()
	for _, c := range r.clients {
		c.Close()
	}
	return nil
}
