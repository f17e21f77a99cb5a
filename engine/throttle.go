package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultWaiters = 10_000
	// waitMargin is what a held answer leaves of the caller's time for the store and for its own way back, and leastMargin what is
	// left of that after the store.
	waitMargin  = 5 * time.Millisecond
	leastMargin = time.Millisecond
)

// queue holds the answers of throttled requests until their tokens are due. Those of one key leave in the order in which
// they are due.
type queue struct {
	bound   int64
	turned  atomic.Int64       // requests that could not wait because there were too many
	mu      sync.Mutex         // guards all below
	waiting int64              //
	last    map[string]*waiter // by key: the one that is due last
}

// waiter is one answer that is held.
type waiter struct {
	due  time.Time
	left chan struct{} // closed when it is gone
}

// boundWaits cuts the longest waits down to what the caller has time for, and to nothing when too many wait already.
func (e *Engine) boundWaits(ctx context.Context, v *Verdict) {
	for i := range v.Match.Charges {
		c := &v.Match.Charges[i]
		if c.MaxWait == 0 {
			continue
		}
		if e.queue.full() {
			c.MaxWait = 0
			e.queue.turned.Add(1)
			continue
		}
		deadline, ok := ctx.Deadline()
		if ok {
			c.MaxWait = max(min(c.MaxWait, time.Until(deadline)-waitMargin), 0)
		}
	}
}

// wait holds an admitted answer until the last of its tokens is due. A caller that hangs up gives back what it took, and
// is refused, and so does one whose time the store has used up: an answer that comes too late would admit it for nothing.
func (e *Engine) wait(ctx context.Context, v *Verdict) {
	if v.Refused || v.Shadowed {
		return
	}
	longest, key := time.Duration(0), ""
	for i := range v.Decisions {
		if v.Decisions[i].Wait > longest {
			longest, key = v.Decisions[i].Wait, v.Match.Charges[i].Key
		}
	}
	if longest == 0 {
		return
	}
	began := e.cfg.Now()
	deadline, bounded := ctx.Deadline()
	switch {
	case bounded && time.Until(deadline)-leastMargin < longest:
		e.hangUp(ctx, v)
		v.Refused, v.RetryAfter = true, longest
	case !e.queue.hold(ctx, key, longest):
		e.hangUp(context.WithoutCancel(ctx), v)
		v.Refused, v.RetryAfter = true, longest
	}
	v.Waited = e.cfg.Now().Sub(began)
}

// full reports whether no further answer may wait.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting >= q.bound
}

// hold waits until a token of key is due, and until those that are due before it have left. It reports false when the
// caller hung up first.
func (q *queue) hold(ctx context.Context, key string, wait time.Duration) bool {
	w := &waiter{due: time.Now().Add(wait), left: make(chan struct{})}
	before := q.enter(key, w)
	defer q.leave(key, w)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	if before == nil {
		return true
	}
	select {
	case <-before.left:
		return true
	case <-ctx.Done():
		return false
	}
}

// enter counts a waiter and returns the one to let leave first: the last of its key, unless that is due later.
func (q *queue) enter(key string, w *waiter) (before *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting++
	last := q.last[key]
	if last != nil && last.due.After(w.due) {
		return nil
	}
	q.last[key] = w
	return last
}

// leave lets those behind it go.
func (q *queue) leave(key string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.last[key] == w {
		delete(q.last, key)
	}
	close(w.left)
}
