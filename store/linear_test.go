package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// historyClients is how many clients spend at once.
const historyClients = 6

// decider decides the charges of one request.
type decider func(charges []limit.Charge) told

// history is what some clients did at once, and what they were told.
type history struct {
	seed    uint64 // of what the clients do; how they meet is up to the machine
	name    string // of its counters
	limit   limit.Limit
	keys    int  // counters
	charges int  // of a request, at most
	falling bool // nothing is given back
	losses  int  // lost replies after which a client stops: each one doubles the search for an order. 0: it goes on
	start   time.Time
	clients [][]porcupine.Operation
}

// newHistory chooses the numbers of a history. Its limit is small, so that there are refusals.
func newHistory(t *testing.T, kind limit.Algorithm, windows []time.Duration) *history {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	count := 4 + random.Int64N(30)
	return &history{
		seed: seed, name: fmt.Sprintf("%s:%d", t.Name(), seed), keys: 1 + random.IntN(historyKeys), charges: 1,
		limit: limit.Limit{Algorithm: kind, Count: count, Window: windows[random.IntN(len(windows))], Burst: max(1, count-4+random.Int64N(9))},
	}
}

// record lets the clients loose, each with its own decider, and writes down what happens.
func (h *history) record(steps int, deciders ...decider) {
	h.clients = make([][]porcupine.Operation, len(deciders))
	begin := make(chan struct{})
	var all sync.WaitGroup
	for id, decide := range deciders {
		random := rand.New(rand.NewPCG(h.seed, uint64(id)+1))
		all.Go(func() {
			<-begin
			lost := 0
			for range steps {
				if h.ask(id, h.plan(random), decide) {
					continue
				}
				lost++
				if lost == h.losses {
					return
				}
			}
		})
	}
	h.start = time.Now()
	close(begin)
	all.Wait()
}

// ask writes down one operation of a client, and reports whether its reply came. What is known not to have run is left out.
func (h *history) ask(id int, q asked, decide decider) bool {
	o := porcupine.Operation{ClientId: id, Input: q, Call: int64(time.Since(h.start))}
	a := decide(q.charges)
	o.Output, o.Return = a, int64(time.Since(h.start))
	if a.unknown {
		o.Return = unseen
	}
	if !a.unknown || h.losses == 0 || a.decisions[0].Unknown {
		h.clients[id] = append(h.clients[id], o)
	}
	return !a.unknown
}

// look asks what is left on each counter when all clients have stopped.
func (h *history) look(t *testing.T, decide decider) {
	t.Helper()
	for k := range h.keys {
		c := limit.Charge{Key: h.key(k), Limit: h.limit, Cost: 1, Op: limit.Peek}
		servers.Await(t, "an answer about what is left", func() error {
			if !h.ask(0, asked{charges: []limit.Charge{c}, keys: []int{k}}, decide) {
				return errors.New("undecided")
			}
			return nil
		})
	}
}

func (h *history) key(k int) string { return fmt.Sprintf("rl1:{%s}:%d", h.name, k) }

// plan chooses a request: mostly spends.
func (h *history) plan(random *rand.Rand) asked {
	var q asked
	for range 1 + random.IntN(h.charges) {
		k := random.IntN(h.keys)
		c := limit.Charge{Key: h.key(k), Limit: h.limit, Cost: 1 + random.Int64N(3)}
		switch dice := random.IntN(20); {
		case dice < 3:
			c.Op = limit.Peek
		case dice < 6 && !h.falling:
			c.Op = limit.Refund
		case dice < 7:
			c.Op = limit.Debit
		}
		if h.charges > 1 {
			c.Mode, c.Each = limit.Mode(random.IntN(3)), random.IntN(4) == 0
		}
		q.charges, q.keys = append(q.charges, c), append(q.keys, k)
	}
	return q
}

func (h *history) operations() []porcupine.Operation { return slices.Concat(h.clients...) }

// exactly decides on a store, past the cache of denials, and tells the server's time.
func exactly(r *Redis) decider {
	return func(charges []limit.Charge) told {
		t, decisions := &trip{out: new(outbound)}, make([]limit.Decision, len(charges))
		n, _ := r.place(&charges[0])
		ok := r.trip(context.Background(), n, t, charges, false, decisions)
		return told{decisions: decisions, now: t.server, unknown: !ok}
	}
}

// plainly decides on a store as a door does.
func plainly(r *Redis) decider {
	return func(charges []limit.Charge) told {
		decisions := spend(r, charges...)
		return told{decisions: decisions, unknown: decisions[0].Outcome == limit.Undecided}
	}
}

// spread gives each client one of the stores.
func spread(by func(*Redis) decider, stores ...*Redis) []decider {
	deciders := make([]decider, historyClients)
	for i := range deciders {
		deciders[i] = by(stores[i%len(stores)])
	}
	return deciders
}

// wantLinearizable fails the test when no order explains the history.
func wantLinearizable(t *testing.T, s sequential, h *history) {
	t.Helper()
	if !s.linearizable(t, h) {
		t.Fatalf("history with seed %d is not linearizable:\n%v", h.seed, h)
	}
}

// wantKnown fails the test when the store did not decide everything.
func wantKnown(t *testing.T, h *history) {
	t.Helper()
	for _, o := range h.operations() {
		if a := o.Output.(told); a.unknown {
			t.Fatalf("history with seed %d: undecided because of %q", h.seed, a.decisions[0].Reason)
		}
	}
}

// shortAndLong are windows of which some end within a history.
var shortAndLong = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, time.Second, time.Hour}

// TestSpendsAreLinearizable is the promise that all sidecars together count as one: several stores on one server, and
// each decision is to the microsecond what it would have been one after the other in some order that fits.
func TestSpendsAreLinearizable(t *testing.T) {
	server := servers.StartRedis(t)
	var stores []*Redis
	for range 3 {
		stores = append(stores, openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, DenialEntries: -1}))
	}
	eachKind(t, func(t *testing.T, kind limit.Algorithm) {
		for range singleHistories {
			h := newHistory(t, kind, shortAndLong)
			h.record(12, spread(exactly, stores...)...)
			wantKnown(t, h)
			wantLinearizable(t, sequential{}, h)
		}
		for range requestHistories {
			h := newHistory(t, kind, shortAndLong)
			h.keys, h.charges = historyKeys, 4
			h.record(8, spread(exactly, stores...)...)
			wantKnown(t, h)
			wantLinearizable(t, sequential{whole: true}, h)
		}
	})
}

func eachKind(t *testing.T, test func(t *testing.T, kind limit.Algorithm)) {
	for kind := limit.TokenBucket; kind <= limit.SlidingLog; kind++ {
		t.Run(kind.String(), func(t *testing.T) { test(t, kind) })
	}
}

// TestSpendsBehindTheDenialCacheAreLinearizable is about outcomes: what a store refuses by memory is what the server would
// have refused. Refunds are left out, because a refusal by memory may be older than one that is on its way, and so may be
// what it says is left.
func TestSpendsBehindTheDenialCacheAreLinearizable(t *testing.T) {
	server := servers.StartRedis(t)
	stores := []*Redis{openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}}), openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})}
	eachKind(t, func(t *testing.T, kind limit.Algorithm) {
		for range cachedHistories {
			h := newHistory(t, kind, []time.Duration{year})
			h.falling = true
			h.record(20, spread(plainly, stores...)...)
			wantKnown(t, h)
			wantLinearizable(t, sequential{instant: time.Now().UnixMicro()}, h)
		}
	})
	if hits := stores[0].Stats().DenialHits; hits == 0 {
		t.Fatalf("no refusal came from the cache of denials")
	}
}

// TestLostRepliesAreLinearizable loses some replies: each such request has run once, or not at all.
func TestLostRepliesAreLinearizable(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	r := openUnguarded(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{p.Addr}}, Budget: 50 * time.Millisecond})
	awaitAllowed(t, r, charge(t, "warm", bucket(1_000_000, year), 1))
	before := p.Met()
	eachKind(t, func(t *testing.T, kind limit.Algorithm) {
		for i := range lossyHistories {
			mode := []servers.Mode{servers.DropReplies, servers.ResetReplies, servers.HalfClose}[i%3]
			p.Set(servers.Fault{Mode: mode, Share: 0.08})
			h := newHistory(t, kind, []time.Duration{year})
			h.losses = 2
			h.record(12, spread(exactly, r)...)
			p.Set(servers.Fault{})
			h.look(t, exactly(r))
			wantLinearizable(t, sequential{instant: time.Now().UnixMicro()}, h)
		}
	})
	if p.Met() == before {
		t.Fatalf("no reply was lost")
	}
}

// racy is a limiter as one should not write it: it reads, decides and writes in three steps.
func racy(t *testing.T, client *redis.Client) decider {
	return func(charges []limit.Charge) told {
		ctx := context.Background()
		pipe := client.TxPipeline()
		clock, kept := pipe.Time(ctx), pipe.Get(ctx, charges[0].Key)
		_, err := pipe.Exec(ctx)
		if err != nil && err != redis.Nil {
			t.Errorf("read the counter: %v", err)
		}
		var state limit.State
		if text, err := kept.Bytes(); err == nil {
			json.Unmarshal(text, &state)
		}
		a := told{decisions: make([]limit.Decision, 1), now: clock.Val().UnixMicro()}
		limit.Decide([]*limit.State{&state}, charges, false, a.now, a.decisions)
		text, _ := json.Marshal(state)
		err = client.Set(ctx, charges[0].Key, text, time.Hour).Err()
		if err != nil {
			t.Errorf("write the counter: %v", err)
		}
		return a
	}
}

// TestRacyLimiterIsNotLinearizable shows that the check can fail, and that it fails because of the race only: a racy
// limiter with one client has no other to race with.
func TestRacyLimiterIsNotLinearizable(t *testing.T) {
	client := look(t, servers.StartRedis(t), redis.Options{}).client
	limiter := racy(t, client)
	eachKind(t, func(t *testing.T, kind limit.Algorithm) {
		rejected := 0
		for range racyHistories {
			alone := newHistory(t, kind, shortAndLong)
			alone.record(12, limiter)
			wantLinearizable(t, sequential{}, alone)
			h := newHistory(t, kind, shortAndLong)
			h.record(12, slices.Repeat([]decider{limiter}, historyClients)...)
			if !(sequential{}).linearizable(t, h) {
				rejected++
			}
		}
		t.Logf("rejected %d of %d histories", rejected, racyHistories)
		if rejected == 0 {
			t.Fatalf("none of %d histories of a racy limiter was rejected", racyHistories)
		}
	})
}
