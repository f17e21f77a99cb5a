package store

import (
	"context"
	"crypto/rand"
	_ "embed" // for the script
	"fmt"
	"slices"
	"strconv"
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

// beatScript is what a sidecar does to show that it lives, and to learn who else does.
//
//go:embed heart.lua
var beatScript string

// heart counts the sidecars that share a store. Each shows up every second under a key of its own name, on every shard of a ring.
type heart struct {
	fleet  *fleet.Fleet
	key    string
	id     string
	failed func(reason string, err error)
	live   atomic.Int64 // as last known; 0: never
	calm   time.Time    // until then the number does not fall
	cancel context.CancelFunc
	done   chan struct{}
}

func newHeart(f *fleet.Fleet, key string, failed func(reason string, err error)) *heart {
	ctx, cancel := context.WithCancel(context.Background())
	h := &heart{fleet: f, key: key, id: rand.Text(), failed: failed, cancel: cancel, done: make(chan struct{})}
	go h.run(ctx)
	return h
}

// Live is how many sidecars share this store, this one included: the last number that was known, and 1 when none ever was.
func (r *Redis) Live() int {
	if r.heart == nil {
		return 1
	}
	return int(max(r.heart.live.Load(), 1))
}

func (h *heart) run(ctx context.Context) {
	defer close(h.done)
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		h.beat()
		if ctx.Err() == nil {
			select {
			case <-ticker.C:
				continue
			case <-ctx.Done():
			}
		}
		h.leave()
		return
	}
}

// homes are the nodes that keep the key: of a ring all of them, so that the number is known as long as one lives.
func (h *heart) homes() []*fleet.Node {
	if h.fleet.Everywhere() {
		return h.fleet.Nodes()
	}
	n, _ := h.fleet.Place(h.key)
	return []*fleet.Node{n}
}

// beat shows up everywhere at once. The largest count wins: a shard that was away knows of few. Where all were away nobody could show up,
// so for as long as it takes to find out who lives the number does not fall.
func (h *heart) beat() {
	most := slices.Max(h.tell(beatWithin, "EVAL", beatScript, "1", h.key, h.id, strconv.FormatInt(deadAfter.Milliseconds(), 10)))
	if most == 0 {
		h.calm = time.Now().Add(deadAfter)
		return
	}
	if most > h.live.Load() || time.Now().After(h.calm) {
		h.live.Store(most)
	}
}

// leave removes this sidecar from the heartbeat, so that others stop counting it at once.
func (h *heart) leave() {
	h.tell(leaveIn, "ZREM", h.key, h.id)
}

// tell sends a command to all homes, and returns their answers, 0 where there was none.
func (h *heart) tell(within time.Duration, words ...string) []int64 {
	homes := h.homes()
	answers := make([]int64, len(homes))
	var all sync.WaitGroup
	for i, n := range homes {
		all.Go(func() {
			reply, err := n.Ask(within, h.key, words...)
			if err != nil {
				h.failed(fleet.Reason(err), err)
				return
			}
			answers[i], _ = reply.Int()
		})
	}
	all.Wait()
	return answers
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
	case fleet.ReasonNoAuth, fleet.ReasonNoPerm, fleet.ReasonWrong, fleet.ReasonScript:
		r.onError(why, fmt.Errorf("count the live sidecars: %w", err))
	}
}
