package store

import (
	"context"
	"crypto/rand"
	_ "embed" // for the script
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
)

const (
	beatEvery  = time.Second     // how often a sidecar shows that it lives
	deadAfter  = 5 * time.Second // how long it is counted after the last sign
	beatWithin = time.Second     // for all servers to answer
	leaveIn    = 100 * time.Millisecond
)

// beatScript shows that this sidecar lives, and counts those that do.
//
//go:embed heart.lua
var beatScript string

// heartKeys is how many keys one call of the script is about: a call takes some 3 µs of Redis for each.
const heartKeys = 100

// heart counts the sidecars that share a store, and those of each domain. Each shows up every second under its own name in one set for
// all sidecars, and one for each of its domains, on every shard of a ring.
type heart struct {
	fleet   *fleet.Fleet
	key     string
	id      string
	failed  func(reason string, err error)
	domains atomic.Pointer[[]string]         // that this sidecar has rules for
	live    atomic.Pointer[map[string]int64] // by domain, and of all sidecars under allDomains, as last known; nil: never
	calm    time.Time                        // until then no number falls
	changed chan struct{}                    // the domains are others
	cancel  context.CancelFunc
	done    chan struct{}
}

// allDomains stands for the sidecars of every domain. No domain has an empty name.
const allDomains = ""

func newHeart(f *fleet.Fleet, key string, failed func(reason string, err error)) *heart {
	ctx, cancel := context.WithCancel(context.Background())
	h := &heart{fleet: f, key: key, id: rand.Text(), failed: failed, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	h.domains.Store(new([]string))
	go h.run(ctx)
	return h
}

// Live is how many sidecars with rules for a domain share this store, this one included; of an empty domain, how many sidecars there are.
// It is the last number that was known. Where the domain's was never known it is that of all sidecars, and 1 where that is not known
// either.
func (r *Redis) Live(domain string) int {
	if r.heart == nil {
		return 1
	}
	return r.heart.count(domain)
}

// Serve sets the domains that this sidecar has rules for, so that others count it there.
func (r *Redis) Serve(domains []string) {
	if r.heart == nil {
		return
	}
	r.heart.domains.Store(&domains)
	select {
	case r.heart.changed <- struct{}{}:
	default: // the next beat is to come already
	}
}

func (h *heart) count(domain string) int {
	known := h.live.Load()
	if known == nil {
		return 1
	}
	n, found := (*known)[domain]
	if !found {
		n = (*known)[allDomains]
	}
	return int(max(n, 1))
}

func (h *heart) run(ctx context.Context) {
	defer close(h.done)
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		h.fleet.Guard(func() { h.beat(*h.domains.Load()) })
		if ctx.Err() == nil {
			select {
			case <-ticker.C:
				continue
			case <-h.changed:
				continue
			case <-ctx.Done():
			}
		}
		h.fleet.Guard(h.leave)
		return
	}
}

// homes are the nodes that keep the keys: of a ring all of them, so that the numbers are known as long as one lives.
func (h *heart) homes() []*fleet.Node {
	if h.fleet.Everywhere() {
		return h.fleet.Nodes()
	}
	n, _ := h.fleet.Place(h.key)
	return []*fleet.Node{n}
}

// keysOf are the sets that a sidecar of those domains is in: one of all sidecars, and one for each domain. They share a hash
// tag.
func (h *heart) keysOf(domains []string) []string {
	keys := []string{h.key}
	for _, d := range domains {
		keys = append(keys, h.key+":domain:"+d)
	}
	return keys
}

// beat shows up everywhere at once. The largest count wins: a shard that was away knows of few. Where all were away no sidecar could show
// up, so for as long as it takes to find out which live no number falls.
func (h *heart) beat(domains []string) {
	most := map[string]int64{}
	for _, counts := range h.tell(beatWithin, h.keysOf(domains), deadAfter) {
		if len(counts) != 1+len(domains) {
			continue // the first reply is missing, or is not one of the script
		}
		most[allDomains] = max(most[allDomains], counts[0])
		for i, n := range counts[1:] {
			most[domains[i]] = max(most[domains[i]], n)
		}
	}
	if len(most) == 0 {
		h.calm = time.Now().Add(deadAfter)
		return
	}
	h.keep(most)
	h.live.Store(&most)
}

// keep adds to fresh numbers the last known ones of domains that were not counted, and the larger ones while no number may fall.
func (h *heart) keep(fresh map[string]int64) {
	known := h.live.Load()
	if known == nil {
		return
	}
	calm := !time.Now().After(h.calm)
	for domain, n := range *known {
		_, counted := fresh[domain]
		if !counted || calm {
			fresh[domain] = max(fresh[domain], n)
		}
	}
}

// leave removes this sidecar from the heartbeat, so that others stop counting it at once.
func (h *heart) leave() {
	h.tell(leaveIn, h.keysOf(*h.domains.Load()), 0)
}

// tell runs the script on all homes, and returns the counts of the keys at each, none where one did not answer.
func (h *heart) tell(within time.Duration, keys []string, dead time.Duration) [][]int64 {
	homes := h.homes()
	answers := make([][]int64, len(homes))
	var all sync.WaitGroup
	for i, n := range homes {
		all.Go(func() { h.fleet.Guard(func() { answers[i] = h.tellNode(n, within, keys, dead) }) })
	}
	all.Wait()
	return answers
}

// tellNode runs the script on one home, for some keys at a time. The counts end where the home stopped answering.
func (h *heart) tellNode(n *fleet.Node, within time.Duration, keys []string, dead time.Duration) []int64 {
	var counts []int64
	for some := range slices.Chunk(keys, heartKeys) {
		words := append([]string{"EVAL", beatScript, strconv.Itoa(len(some))}, some...)
		reply, err := n.Ask(within, h.key, append(words, h.id, strconv.FormatInt(dead.Milliseconds(), 10))...)
		if err != nil {
			h.failed(fleet.Reason(err), err)
			return counts
		}
		if dead == 0 {
			continue // it left, and counts nothing
		}
		numbers, err := countsOf(reply.Data, len(some))
		if err != nil {
			h.failed(fleet.ReasonReply, err)
			return counts
		}
		counts = append(counts, numbers...)
	}
	return counts
}

// mostSidecars is more than share a store.
const mostSidecars = 1_000_000

// countsOf reads the reply of the script, which has one number for each key.
func countsOf(reply []byte, keys int) ([]int64, error) {
	words := strings.Fields(string(reply))
	if len(words) != keys {
		return nil, fmt.Errorf("read the reply about the live sidecars: it has %d numbers for %d sets", len(words),
			keys)
	}
	counts := make([]int64, keys)
	for i, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 || n > mostSidecars {
			return nil, fmt.Errorf("read the reply about the live sidecars: %.40q must be 0 to %d",
				word, mostSidecars)
		}
		counts[i] = n
	}
	return counts, nil
}

// stop ends the heartbeat, and gives it a moment to leave. What still waits for a server ends with the connections.
func (h *heart) stop() {
	h.cancel()
	moment := time.NewTimer(2 * leaveIn)
	defer moment.Stop()
	select {
	case <-h.done:
	case <-moment.C:
	}
}

// beatFailed reports a heartbeat that only an operator can mend. That a server is away shows in the calls.
func (r *Redis) beatFailed(why string, err error) {
	switch why {
	case fleet.ReasonNoAuth, fleet.ReasonNoPerm, fleet.ReasonWrong, fleet.ReasonScript, fleet.ReasonReply:
		r.onError(why, fmt.Errorf("count the live sidecars: %w", err))
	}
}
