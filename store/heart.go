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

	"github.com/redis/go-redis/v9"
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
	fleet  fleet
	key    string
	id     string
	failed func(reason string, err error)
	live   atomic.Int64 // as last known; 0: never
	calm   time.Time    // until then the number does not fall
	cancel context.CancelFunc
	done   chan struct{}
}

func newHeart(f fleet, key string, failed func(reason string, err error)) *heart {
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
		h.beat(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			h.leave()
			return
		}
	}
}

// homes are the nodes that keep the key: of a ring all of them, so that the number is known as long as one lives.
func (h *heart) homes() []*node {
	if _, ok := h.fleet.(*ring); ok {
		return h.fleet.nodes()
	}
	n, _ := h.fleet.place(h.key)
	return []*node{n}
}

// beat shows up everywhere at once. The largest count wins: a shard that was away knows of few. Where all were away nobody could show up,
// so for as long as it takes to find out who lives the number does not fall.
func (h *heart) beat(ctx context.Context) {
	most := slices.Max(h.tell(ctx, beatWithin, "eval", beatScript, 1, h.key, h.id, deadAfter.Milliseconds()))
	if most == 0 {
		h.calm = time.Now().Add(deadAfter)
		return
	}
	if most > h.live.Load() || time.Now().After(h.calm) {
		h.live.Store(most)
	}
}

// leave is good manners: the others need not wait until this sidecar is dead.
func (h *heart) leave() {
	h.tell(context.Background(), leaveIn, "zrem", h.key, h.id)
}

// tell sends a command to all homes, and returns their answers, 0 where there was none.
func (h *heart) tell(ctx context.Context, within time.Duration, command ...any) []int64 {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	homes := h.homes()
	answers := make([]int64, len(homes))
	var all sync.WaitGroup
	for i, n := range homes {
		all.Go(func() {
			cmd := redis.NewCmd(ctx, command...)
			err := n.sender.Process(ctx, cmd)
			if err != nil {
				h.failed(reason(err), err)
				return
			}
			answers[i], _ = cmd.Int64()
		})
	}
	all.Wait()
	return answers
}

func (h *heart) stop() {
	h.cancel()
	<-h.done
}

// beatFailed reports a heartbeat that only an operator can mend. That a server is away shows in the calls.
func (r *Redis) beatFailed(why string, err error) {
	switch why {
	case ReasonNoAuth, ReasonNoPerm, ReasonWrong, ReasonScript:
		r.onError(why, fmt.Errorf("count the live sidecars: %w", err))
	}
}
