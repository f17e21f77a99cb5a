package store

import (
	"context"
	"crypto/rand"
	_ "embed" // for the script
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

const (
	beatEvery    = time.Second            // how often a sidecar shows that it lives
	deadAfter    = 5 * time.Second        // how long it is counted after the last sign
	beatWithin   = time.Second            // for all servers to answer
	leaveIn      = 100 * time.Millisecond // likewise, when it leaves
	beatKeys     = 100                    // of one call of the script: each takes some 3 µs of Redis
	mostSidecars = 1_000_000              // more than share a store
)

// beatScript shows that this sidecar lives, and counts those that do.
//
//go:embed heartbeat.lua
var beatScript string

// heartbeat counts the sidecars that share a store, and those of each domain. Each shows up every second under its own
// name in one set for all sidecars, and one for each of its domains, on every server of a ring.
type heartbeat struct {
	store   *Redis
	id      string
	domains atomic.Pointer[[]string]         // that this sidecar has rules for
	live    atomic.Pointer[map[string]int64] // by domain, as last known; nil: never
	steady  time.Time                        // until then no number falls
}

// allDomains stands for the sidecars of every domain. No domain has an empty name.
const allDomains = ""

func newHeartbeat(r *Redis) *heartbeat {
	h := &heartbeat{store: r, id: rand.Text()}
	h.domains.Store(new([]string))
	return h
}

// Live is how many sidecars with rules for a domain share this store, this one included; of an empty domain, how many
// sidecars there are. It is the last number that was known. Where the domain's was never known it is that of all
// sidecars, and 1 where that is not known either.
func (r *Redis) Live(domain string) int {
	if r.heartbeat == nil || r.heartbeat.live.Load() == nil {
		return 1
	}
	known := *r.heartbeat.live.Load()
	n, found := known[domain]
	if !found {
		n = known[allDomains]
	}
	return int(max(n, 1))
}

// Serve sets the domains that this sidecar has rules for, so that others count it there from the next second on.
func (r *Redis) Serve(domains []string) {
	if r.heartbeat != nil {
		r.heartbeat.domains.Store(&domains)
	}
}

// run shows up until the context ends, and leaves then, so that others stop counting this sidecar at once.
func (h *heartbeat) run(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		h.store.guard(func() { h.beat(ctx, *h.domains.Load()) })
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveIn)
	defer cancel()
	h.show(ctx, h.keysOf(*h.domains.Load()), 0)
}

// keysOf are the sets that a sidecar of those domains is in. They share a hash tag.
func (h *heartbeat) keysOf(domains []string) []string {
	keys := []string{h.store.cfg.Heartbeat}
	for _, d := range domains {
		keys = append(keys, keys[0]+":domain:"+d)
	}
	return keys
}

// beat shows up everywhere at once. The largest count wins: a server that was away knows of few. Where all were away no
// sidecar could show up, so for as long as it takes to find out which live no number falls.
func (h *heartbeat) beat(ctx context.Context, domains []string) {
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	most := map[string]int64{}
	for _, counts := range h.show(ctx, h.keysOf(domains), deadAfter) {
		if len(counts) != 1+len(domains) {
			continue // the server did not answer for all
		}
		most[allDomains] = max(most[allDomains], counts[0])
		for i, n := range counts[1:] {
			most[domains[i]] = max(most[domains[i]], n)
		}
	}
	h.take(most)
}

// take takes in fresh numbers. The last known ones stay for domains that were not counted, and the larger ones while no
// number may fall.
func (h *heartbeat) take(fresh map[string]int64) {
	if len(fresh) == 0 {
		h.steady = time.Now().Add(deadAfter)
		return
	}
	steady := !time.Now().After(h.steady)
	if known := h.live.Load(); known != nil {
		for domain, n := range *known {
			_, counted := fresh[domain]
			if !counted || steady {
				fresh[domain] = max(fresh[domain], n)
			}
		}
	}
	h.live.Store(&fresh)
}

// sender sends a command to one server.
type sender func(ctx context.Context, words ...any) (any, error)

// show runs the script on all servers that keep the keys: of a ring all of them, so that the numbers are known as long as
// one lives. It returns the counts of the keys at each, fewer where one did not answer.
func (h *heartbeat) show(ctx context.Context, keys []string, dead time.Duration) [][]int64 {
	client := h.store.cfg.Main
	servers := client.Everywhere()
	counts := make([][]int64, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		send := server.Run
		if len(servers) == 1 { // a cluster has a server for the keys
			send = func(ctx context.Context, words ...any) (any, error) { return client.Run(ctx, keys[0], words...) }
		}
		all.Go(func() { h.store.guard(func() { counts[i] = h.showAt(ctx, send, keys, dead) }) })
	}
	all.Wait()
	return counts
}

// showAt runs the script on one server, for some keys at a time.
func (h *heartbeat) showAt(ctx context.Context, send sender, keys []string, dead time.Duration) (counts []int64) {
	for some := range slices.Chunk(keys, beatKeys) {
		words := []any{"EVAL", beatScript, len(some)}
		for _, key := range some {
			words = append(words, key)
		}
		reply, err := send(ctx, append(words, h.id, dead.Milliseconds())...)
		if err == nil && dead > 0 {
			counts, err = appendCounts(counts, reply, len(some))
		}
		if err != nil {
			h.failed(err)
			return counts
		}
	}
	return counts
}

// appendCounts appends the reply of the script, which has one number for each key.
func appendCounts(counts []int64, reply any, keys int) ([]int64, error) {
	numbers, _ := reply.([]any)
	for _, number := range numbers {
		if n, _ := number.(int64); n > 0 && n <= mostSidecars {
			counts, keys = append(counts, n), keys-1
		}
	}
	if keys != 0 {
		return nil, fmt.Errorf("the reply %.40v must have one number up to %d for each key", reply, mostSidecars)
	}
	return counts, nil
}

// failed reports a heartbeat that only an operator can mend. That a server is away shows in the requests.
func (h *heartbeat) failed(err error) {
	switch reason := redis.Reason(err); reason {
	case redis.ReasonNoAuth, redis.ReasonNoPerm, redis.ReasonWrong, redis.ReasonScript, redis.ReasonError:
		h.store.cfg.OnError(reason, fmt.Errorf("count the live sidecars: %w", err))
	}
}
