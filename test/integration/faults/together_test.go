package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	sidecarCount = 20 // stores, each as one sidecar has it
	atOnce       = 5  // calls of one store at once
)

// member is one store of many that share a Redis.
type member struct {
	*store.Redis
	calls    atomic.Int64 // batches that the breaker let pass
	halfOpen atomic.Int64 // periods of probing so far
	closed   atomic.Int64 // times it closed
	reopened atomic.Int64 // times it opened after it had closed
}

// together lets many stores lose one Redis and find it again: they probe one by one, and do not fall over it.
func together(x *trial) {
	x.startRedis()
	var sidecars []*member
	for range sidecarCount {
		sidecars = append(sidecars, x.newMember())
	}
	stop := x.press(sidecars)
	servers.Await(x, "decisions for all", func() error { return allDecide(sidecars) })
	pass(time.Second)
	x.began = time.Now()
	x.redis.Kill(x)
	pass(time.Second)
	x.probesWithin(sidecars, x.length-time.Second)
	x.redis.Start(x)
	x.ended = time.Now()
	servers.Await(x, "closed breakers", func() error { return allClosed(sidecars) })
	x.seen.closed = time.Since(x.ended)
	x.closes(2 * time.Second)
	pass(10 * time.Second)
	stop()
	x.notReopened(sidecars)
}

func (x *trial) newMember() *member {
	m := &member{}
	m.Redis = store.NewRedis(store.RedisConfig{Main: redis.New(redis.Config{
		Servers: redis.Servers{Addresses: []string{x.redis.Addr}},
		OnBreaker: func(_ string, _, to breaker.State) {
			switch to {
			case breaker.HalfOpen:
				m.halfOpen.Add(1)
			case breaker.Closed:
				m.closed.Add(1)
			case breaker.Open:
				if m.closed.Load() > 0 {
					m.reopened.Add(1)
				}
			}
		},
		OnCall: func(_ string, _, _ int, _ time.Duration, reason string) {
			if reason != redis.ReasonBreaker {
				m.calls.Add(1)
			}
		},
	})})
	x.Cleanup(func() { m.Close() })
	return m
}

// press makes each store spend ten times a second, a few calls at once, one store after the other, until stop.
func (x *trial) press(sidecars []*member) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond / sidecarCount)
		defer tick.Stop()
		for n := 0; ; n = (n + 1) % sidecarCount {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			charge := limit.Charge{Key: fmt.Sprintf("rl1:{together|%d}", n), Cost: 1,
				Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: limitOf, Window: time.Hour}}
			for range atOnce {
				running.Go(func() {
					sidecars[n].Ask(context.Background(), &limit.Request{Charges: []limit.Charge{charge},
						Decisions: make([]limit.Decision, 1)})
				})
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// probesWithin checks that in that time of the outage each store asks only as a probe, once in each period.
func (x *trial) probesWithin(sidecars []*member, d time.Duration) {
	x.Helper()
	calls, periods := make([]int64, len(sidecars)), make([]int64, len(sidecars))
	for i, m := range sidecars {
		calls[i], periods[i] = m.calls.Load(), m.halfOpen.Load()
	}
	pass(d)
	for i, m := range sidecars {
		n, most := m.calls.Load()-calls[i], m.halfOpen.Load()-periods[i]+1
		if n > most {
			x.fails("a store asked %d times in an outage, at most %d probes", n, most)
		}
	}
}

// notReopened checks that every store stayed with the server, and that they did not storm it.
func (x *trial) notReopened(sidecars []*member) {
	x.Helper()
	var reopened int64
	for _, m := range sidecars {
		reopened += m.reopened.Load()
	}
	if reopened > 0 {
		x.misses("breakers opened again %d times within 10 s", reopened)
	}
	var connects int64
	for _, line := range strings.Fields(fmt.Sprint(x.do("INFO", "stats"))) {
		fmt.Sscanf(line, "total_connections_received:%d", &connects)
	}
	x.note("%d connections", connects)
	if connects == 0 || connects > sidecarCount*poolSize {
		x.fails("%d connections, at most %d", connects, sidecarCount*poolSize)
	}
}

func allDecide(sidecars []*member) error {
	for i, m := range sidecars {
		if s := m.Stats().Calls; s.Sent == s.Undecided {
			return fmt.Errorf("store %d: %+v", i, s)
		}
	}
	return nil
}

func allClosed(sidecars []*member) error {
	for i, m := range sidecars {
		if m.closed.Load() == 0 {
			return fmt.Errorf("the breaker of store %d is not closed yet", i)
		}
	}
	return nil
}
