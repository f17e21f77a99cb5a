package store

import (
	"cmp"
	"context"
	_ "embed" // for the script
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

const (
	beatEvery = time.Second            // how often a sidecar shows that it lives, and how long that may take
	deadAfter = 5 * time.Second        // how long it is counted after the last sign
	leaveIn   = 100 * time.Millisecond // how long it may take to leave
	beatKeys  = 100                    // of one call of the script: each takes some 3 µs of Redis
)

// beatScript shows that this sidecar lives, and counts those that do.
//
//go:embed heartbeat.lua
var beatScript string

// heartbeat counts the sidecars that share a store, and those of each domain. Each shows up every second under its
// own name in one set for all sidecars, and one for each of its domains.
type heartbeat struct {
	store   *Redis
	id      string
	domains atomic.Pointer[[]string]         // that this sidecar has rules for; nil: none
	live    atomic.Pointer[map[string]int64] // by domain, as last known; nil: never
	steady  time.Time                        // until then no number falls
}

// allDomains means the sidecars of every domain. No domain has an empty name.
const allDomains = ""

// Live is how many sidecars with rules for a domain share this store, this one included; of an empty domain, how many
// sidecars there are. It is the last number that was known. Where the domain's was never known it is that of all
// sidecars, and 1 where that is not known either.
func (r *Redis) Live(domain string) int {
	known := r.heartbeat.live.Load()
	if known == nil {
		return 1
	}
	return int(max(cmp.Or((*known)[domain], (*known)[allDomains]), 1))
}

// Serve sets the domains that this sidecar has rules for, so that others count it there from the next second on.
func (r *Redis) Serve(domains []string) { r.heartbeat.domains.Store(&domains) }

// take takes in fresh numbers, below zero where this sidecar was missing. The last known ones stay for domains that
// were not counted. A server that was away, or that lost this sidecar because it started empty or its clock was set,
// may have lost others: for as long as they need to show up no number falls.
func (h *heartbeat) take(fresh map[string]int64) {
	known, lost := cmp.Or(h.live.Load(), new(map[string]int64)), len(fresh) == 0
	for domain, n := range fresh {
		fresh[domain] = max(n, -n)
		lost = lost || n < 0 && (*known)[domain] > 0
	}
	if lost {
		h.steady = time.Now().Add(deadAfter)
	}
	for domain, n := range *known {
		if _, counted := fresh[domain]; !counted || !time.Now().After(h.steady) {
			fresh[domain] = max(fresh[domain], n)
		}
	}
	h.live.Store(&fresh)
}

// show shows up, and returns the counts of domains, after a failure only of the first ones. It reports failures that
// only an operator can mend. That the server is away shows in the requests.
func (h *heartbeat) show(ctx context.Context, within, dead time.Duration) map[string]int64 {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	live, domains, key := map[string]int64{}, []string{allDomains}, h.store.cfg.Heartbeat
	if served := h.domains.Load(); served != nil {
		domains = append(domains, *served...)
	}
	for some := range slices.Chunk(domains, beatKeys) {
		words := []any{"EVAL", beatScript, len(some)}
		for _, domain := range some {
			set := key // those of domains are in the same slot
			if domain != allDomains {
				set += ":domain:" + domain
			}
			words = append(words, set)
		}
		reply, err := h.store.cfg.Main.Run(ctx, key, append(words, h.id, dead.Milliseconds())...)
		if err == nil && dead > 0 {
			err = read(reply, some, live)
		}
		if reason := redis.Reason(err); slices.Contains(mendable, reason) {
			h.store.cfg.OnError(reason, fmt.Errorf("count the live sidecars: %w", err))
		}
		if err != nil {
			break
		}
	}
	return live
}

// mendable are reasons that only an operator can do something about.
var mendable = []string{
	redis.ReasonNoAuth, redis.ReasonNoPerm, redis.ReasonWrong, redis.ReasonScript, redis.ReasonError,
}

// read reads how many sidecars domains have.
func read(reply any, domains []string, live map[string]int64) error {
	numbers, _ := reply.([]any)
	for i, domain := range domains {
		if i < len(numbers) {
			live[domain], _ = numbers[i].(int64)
		}
		if live[domain] == 0 {
			delete(live, domain)
			return fmt.Errorf("the reply %.40v must have a number for each of %d domains", reply, len(domains))
		}
	}
	return nil
}
