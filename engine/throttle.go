package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	defaultWaiters = 10_000
	// waitMargin is what a held answer leaves of the caller's time for the store and for its own way back, and
	// leastMargin what is left of that after the store.
	waitMargin  = 5 * time.Millisecond
	leastMargin = time.Millisecond
)

// queue holds the answers of throttled requests until their tokens are due.
type queue struct {
	bound   int
	turned  atomic.Int64         // requests that were refused because too many waited
	mu      sync.Mutex           // guards all below
	waiting map[*waiter]struct{} //
	until   time.Time            // no answer is held longer; zero: there is no end
}

// waiter is one answer that is held.
type waiter struct {
	due time.Time
	cut chan struct{} // closed when it cannot be held until it is due
}

// Drain ends all waits by then: answers that are due later are decided at once, as refusals, and give back what they
// took. It may be called again with an earlier time.
func (e *Engine) Drain(until time.Time) {
	q := &e.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = until
	for w := range q.waiting {
		if w.due.After(until) {
			delete(q.waiting, w)
			close(w.cut)
		}
	}
}

// boundWaits cuts the longest waits down to what the caller and this process have time for, and to nothing when too
// many wait already. A throttle that cannot wait is not leased either.
func (e *Engine) boundWaits(ctx context.Context, v *Verdict) {
	for i := range v.Match.Charges {
		c := &v.Match.Charges[i]
		if c.MaxWait == 0 {
			continue
		}
		longest, full := e.queue.longest()
		if deadline, ok := ctx.Deadline(); ok {
			longest = min(longest, time.Until(deadline)-waitMargin)
		}
		c.MaxWait, c.Lease = max(min(c.MaxWait, longest), 0), 0
		if full {
			if len(v.cut) == 0 {
				v.cut = resize(v.cut, len(v.Match.Charges))
			}
			v.cut[i], c.MaxWait = c.MaxWait, 0
		}
	}
}

// countTurned counts a request that is refused because too many others wait: each limit that refuses it would have let
// it wait. That is not so of a cool-down, a lost store, and a cost that never passes. In shadow mode none is refused.
func (e *Engine) countTurned(v *Verdict) {
	turned := false
	for i := 0; i < len(v.cut) && !e.cfg.Shadow; i++ {
		c, d := &v.Match.Charges[i], &v.Decisions[i]
		if d.Outcome != limit.Refused || c.Mode != limit.Enforced {
			continue
		}
		turned = true
		if !v.counted(i) || d.Penalized || c.Cost > c.Limit.Capacity() || d.RetryAfter > v.cut[i] {
			return
		}
	}
	if turned {
		e.queue.turned.Add(1)
	}
}

// waits reports whether an answer has to be held, from now on. In shadow mode rules refuse nothing and hold nothing.
func (e *Engine) waits(v *Verdict) bool {
	v.began = e.cfg.Now()
	_, longest := v.longestWait()
	return longest > 0 && !v.Refused && !e.cfg.Shadow
}

// wait holds an admitted answer until the last of its tokens is due. A caller that hangs up gives back what it took,
// and is refused, and so does one whose time the store has used up: an answer that comes too late would admit it for
// nothing.
func (e *Engine) wait(ctx context.Context, v *Verdict) {
	at, longest := v.longestWait()
	if e.cfg.Hold != nil {
		e.cfg.Hold(longest)
		v.Waited = longest
		return
	}
	rest := longest - e.cfg.Now().Sub(v.began)
	deadline, bounded := ctx.Deadline()
	switch {
	case bounded && time.Until(deadline)-leastMargin < rest:
		e.refuseLate(ctx, v, at, rest)
	case !e.queue.hold(ctx, rest):
		e.refuseLate(context.WithoutCancel(ctx), v, at, longest-e.cfg.Now().Sub(v.began))
	}
	v.Waited = e.cfg.Now().Sub(v.began)
}

// longestWait is how long the answer has to be held, and the charge that asks for it.
func (v *Verdict) longestWait() (at int, longest time.Duration) {
	for i := range v.Decisions {
		if v.Decisions[i].Wait > longest {
			at, longest = i, v.Decisions[i].Wait
		}
	}
	return at, longest
}

// refuseLate refuses a request that was admitted and cannot be held until its token is due, which is charge at's, after
// rest. What it was charged is given back, and the verdict is as if that limit had refused it in the first place.
func (e *Engine) refuseLate(ctx context.Context, v *Verdict, at int, rest time.Duration) {
	e.hangUp(ctx, v)
	for i := range v.Decisions {
		v.Decisions[i].Wait = 0
	}
	v.Decisions[at].Outcome, v.Decisions[at].RetryAfter = limit.Refused, max(rest, 1)
	clear(v.Statuses)
	v.Reported, v.Cost = Status{}, 0
	e.fold(v)
}

// longest is how long a further answer may be held, and whether none may, because too many are held already.
func (q *queue) longest() (longest time.Duration, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	longest = limit.LongestWait
	if !q.until.IsZero() {
		longest = time.Until(q.until)
	}
	return longest, len(q.waiting) >= q.bound
}

// hold waits until a token is due. It reports false when it could not: the caller hung up first, too many others wait, or
// waits end before.
func (q *queue) hold(ctx context.Context, wait time.Duration) bool {
	w := &waiter{due: time.Now().Add(wait), cut: make(chan struct{})}
	if !q.enter(w) {
		return false
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, w)
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.cut:
	case <-ctx.Done():
	}
	return false
}

// enter counts a waiter, unless there are too many or its token is due too late.
func (q *queue) enter(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	full, late := len(q.waiting) >= q.bound, !q.until.IsZero() && w.due.After(q.until)
	switch {
	case full:
		q.turned.Add(1)
	case !late:
		q.waiting[w] = struct{}{}
	}
	return !full && !late
}
