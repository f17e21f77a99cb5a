package redis

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The size of a batch at most.
const (
	mostRequests = 64
	mostCharges  = 128
)

// batcher forms batches of the requests that wait for one server. Each of a few workers has one batch under way.
// While one of them is idle a request leaves at once, else with all that came when a batch returns. No timer is needed:
//
//	callers          queue                      workers           server
//	Do(a) ──────────────────────────────────▶  1 [a]      ──▶
//	Do(b) ──────────────────────────────────▶  2 [b]      ──▶
//	Do(c, d), Do(e)  ▶ (c d) (e)                  both are under way
//	                 ▶ (c d) (e)                1 a is done  ◀──    [a's reply]
//	                                        ──▶ 1 [c d e]  ──▶       one pipeline: an EVALSHA for each script and slot
//	Do(f)            ▶ (f)
//	Leave(f)         ▶ (f left)                 2 b is done  ◀──    f is never sent, but for Keep
type batcher struct {
	run    func(batch []*Pending) // sends a batch and finishes its requests
	finish func(*Pending)         // finishes a request that was never sent
	most   int                    // requests that may wait

	mu       sync.Mutex
	ready    *sync.Cond // on mu: there are requests for a worker
	queue    []*Pending
	closed   bool
	working  sync.WaitGroup
	flying   atomic.Int64 // requests in batches
	rejected atomic.Int64 // requests that were not sent
}

// newBatcher starts workers.
func newBatcher(workers, most int, run func([]*Pending), finish func(*Pending)) *batcher {
	b := &batcher{run: run, finish: finish, most: most}
	b.ready = sync.NewCond(&b.mu)
	for range workers {
		b.working.Go(b.work)
	}
	return b
}

// add puts requests into the queue, where they stay together, or finishes them with an error.
func (b *batcher) add(requests []*Pending, err error) {
	for _, p := range requests {
		p.begin()
	}
	if err == nil {
		err = b.enqueue(time.Now(), requests)
	}
	if err != nil {
		b.fail(requests, err)
	}
}

// fail finishes requests that were not sent.
func (b *batcher) fail(requests []*Pending, err error) {
	for _, p := range requests {
		p.Err = err
		b.finish(p)
	}
}

func (b *batcher) enqueue(now time.Time, requests []*Pending) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if b.overloadedLocked(now, requests) {
		b.rejected.Add(int64(len(requests)))
		return errOverload
	}
	requests[0].group, requests[0].since = len(requests), now
	b.queue = append(b.queue, requests...)
	b.ready.Signal()
	return nil
}

// overloadedLocked reports whether requests would hardly be answered in time: too many wait, or the first has waited
// for longer than half of what these may. One that is kept has to be sent, however late.
func (b *batcher) overloadedLocked(now time.Time, requests []*Pending) bool {
	if len(b.queue)+len(requests) > b.most {
		return true
	}
	if len(b.queue) == 0 {
		return false
	}
	waited := now.Sub(b.queue[0].since)
	return slices.ContainsFunc(requests, func(p *Pending) bool {
		return !p.Due.IsZero() && !p.Keep && 2*waited > p.Due.Sub(now)
	})
}

// work sends batches until the batcher is closed.
func (b *batcher) work() {
	var batch, dropped []*Pending
	for open := true; open; {
		runtime.Gosched() // callers that are ready to ask go along
		batch, dropped, open = b.take(batch[:0], dropped[:0])
		b.fail(dropped, errLeft)
		if len(batch) > 0 {
			b.run(batch)
			b.flying.Add(-int64(len(batch)))
		}
		clear(batch)
		clear(dropped)
	}
}

// take waits for requests, and returns a batch of them and those whose callers have left. It reports whether more may
// come.
func (b *batcher) take(batch, dropped []*Pending) (_, _ []*Pending, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.closed {
		b.ready.Wait()
	}
	used, charges := 0, 0
	for used < len(b.queue) {
		group := b.queue[used : used+b.queue[used].group]
		fits := len(batch)+len(group) <= mostRequests && charges+chargesOf(group) <= mostCharges
		if len(batch) > 0 && !fits {
			break
		}
		before := len(batch)
		for _, p := range group {
			if p.unwanted() {
				dropped = append(dropped, p)
			} else {
				batch = append(batch, p)
			}
		}
		charges += chargesOf(batch[before:])
		used += len(group)
	}
	b.queue = slices.Delete(b.queue, 0, used)
	b.flying.Add(int64(len(batch)))
	if len(b.queue) > 0 {
		b.ready.Signal()
	}
	return batch, dropped, !b.closed || len(b.queue) > 0
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
	b.fail(waited, errClosed)
	b.working.Wait()
}

// waiting is how many requests wait.
func (b *batcher) waiting() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.queue))
}
