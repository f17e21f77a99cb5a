package redis

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// The size of a batch at most.
const (
	mostRequests = 64
	mostCharges  = 128
)

// paceTime is the time that a pace is about.
const paceTime = 100 * time.Millisecond

// batcher forms batches of the requests that wait for one server. Each of a few workers has one batch under way.
// While one of them is idle a request leaves at once, else with all that came when a batch returns. README.md has
// a picture.
type batcher struct {
	server *Server

	mu       sync.Mutex
	ready    *sync.Cond // on mu: there are requests for a worker
	queue    []*Pending
	closed   bool
	flying   int // requests in batches
	rejected int // requests that were not sent
	pace     int // how many requests the server is expected to answer within paceTime; see learn
	working  sync.WaitGroup
}

func newBatcher(s *Server) *batcher {
	b := &batcher{server: s, pace: s.client.cfg.Queue}
	b.ready = sync.NewCond(&b.mu)
	for range s.client.cfg.InFlight {
		b.working.Go(b.work)
	}
	return b
}

// add puts requests into the queue, where they stay together.
func (b *batcher) add(now time.Time, requests []*Pending) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.overloadedLocked(now, requests) {
		b.rejected += len(requests)
		return errOverload
	}
	first := requests[0]
	first.group, first.since, first.ahead = len(requests), now, len(b.queue)+b.flying
	b.queue = append(b.queue, requests...)
	b.ready.Signal()
	return nil
}

// overloadedLocked reports whether requests would hardly be answered in time: too many wait, or so many are ahead that
// the server is expected to need three quarters of their time for them. One that is kept has to be sent, however late.
func (b *batcher) overloadedLocked(now time.Time, requests []*Pending) bool {
	waiting := len(b.queue) + len(requests)
	if waiting > b.server.client.cfg.Queue {
		return true
	}
	if len(b.queue) == 0 {
		return false
	}
	wait := paceTime * time.Duration(waiting+b.flying) / time.Duration(b.pace)
	return slices.ContainsFunc(requests, func(p *Pending) bool {
		return !p.Due.IsZero() && !p.Keep && 4*wait > 3*p.Due.Sub(now)
	})
}

// learn adapts the pace to a batch that was answered. One request that took more than half of its time, because more
// than the workers carry at once were ahead of it, lowers the pace to what it met. Else the pace grows: what made the
// server slow may be over.
func (b *batcher) learn(batch []*Pending, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	met := b.pace
	for _, p := range batch {
		took := now.Sub(p.since)
		if p.group == 0 || p.Due.IsZero() || p.ahead < mostRequests*b.server.client.cfg.InFlight {
			continue
		}
		if 2*took > max(0, p.Due.Sub(p.since)) {
			met = min(met, int(time.Duration(p.ahead)*paceTime/took))
		}
	}
	if met == b.pace {
		met = min(b.pace+1+len(batch)/16, b.server.client.cfg.Queue)
	}
	b.pace = max(met, 1)
}

// work sends batches until the batcher is closed.
func (b *batcher) work() {
	var batch, unsent []*Pending
	for open := true; open; {
		runtime.Gosched() // callers that are ready to ask go along
		batch, unsent, open = b.take(batch, unsent)
		b.server.end(unsent, errLeft)
		if len(batch) > 0 {
			b.server.runBatch(batch)
		}
		clear(batch)
		clear(unsent)
	}
}

// take waits for requests, and returns those to send and those whose callers have left, in place of those before. It
// reports whether more may come.
func (b *batcher) take(batch, unsent []*Pending) (_, _ []*Pending, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying -= len(batch)
	batch, unsent = batch[:0], unsent[:0]
	for len(b.queue) == 0 && !b.closed {
		b.ready.Wait()
	}
	used := b.fittingLocked()
	for _, p := range b.queue[:used] {
		if p.state.Load() == left && !p.Keep {
			unsent = append(unsent, p)
		} else {
			batch = append(batch, p)
		}
	}
	b.queue = slices.Delete(b.queue, 0, used)
	b.flying += len(batch)
	if len(b.queue) > 0 {
		b.ready.Signal()
	}
	return batch, unsent, !b.closed
}

// fittingLocked is how many of the queue fit into one batch.
func (b *batcher) fittingLocked() (requests int) {
	for charges := 0; requests < len(b.queue); {
		group := b.queue[requests : requests+b.queue[requests].group]
		charges += chargesOf(group)
		if requests > 0 && (requests+len(group) > mostRequests || charges > mostCharges) {
			break
		}
		requests += len(group)
	}
	return requests
}

func chargesOf(requests []*Pending) (all int) {
	for _, p := range requests {
		all += p.Charges
	}
	return all
}

// close finishes what waits, and waits for the batches under way.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	waited := b.queue
	b.queue = nil
	b.ready.Broadcast()
	b.mu.Unlock()
	b.server.end(waited, errClosed)
	b.working.Wait()
}

// count adds the numbers of requests.
func (b *batcher) count(all *Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all.InFlight += int64(b.flying)
	all.Waiting += int64(len(b.queue))
	all.Rejected += int64(b.rejected)
}
