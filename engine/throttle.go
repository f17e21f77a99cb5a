package engine

import (
	"context"
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
	bound   int64
	waiting atomic.Int64
	turned  atomic.Int64 // requests that were refused because too many waited
	end     atomic.Pointer[waitsEnd]
}

// waitsEnd is when no answer is held any longer.
type waitsEnd struct {
	at    time.Time
	moved chan struct{} // closed when there is another end
}

// Drain ends all waits by then: answers that are due later are decided at once, as refusals, and give back what they
// took. It may be called again with an earlier time.
func (e *Engine) Drain(until time.Time) {
	close(e.queue.end.Swap(&waitsEnd{until, make(chan struct{})}).moved)
}

// boundWaits cuts the longest waits down to what the caller and this process have time for, and to nothing when too
// many wait already. A throttle that cannot wait is not leased either.
func (e *Engine) boundWaits(ctx context.Context, v *Verdict) {
	for i := range v.Match.Charges {
		c := &v.Match.Charges[i]
		if c.MaxWait == 0 {
			continue
		}
		longest := time.Until(e.queue.end.Load().at)
		if deadline, ok := ctx.Deadline(); ok {
			longest = min(longest, time.Until(deadline)-waitMargin)
		}
		if e.queue.waiting.Load() >= e.queue.bound {
			v.crowded, longest = true, 0
		}
		c.MaxWait, c.Lease = max(min(c.MaxWait, longest), 0), 0
	}
}

// wait holds an admitted answer until the last of its tokens is due, counted from an instant. In shadow mode rules
// refuse nothing and hold nothing. A caller that hangs up is refused, and so is one whose time the store has used up:
// an answer that comes too late would admit it for nothing.
func (e *Engine) wait(ctx context.Context, v *Verdict, from time.Time) {
	at, longest := v.longestWait()
	if longest == 0 || v.Refused || e.cfg.Shadow {
		return
	}
	if e.cfg.Hold != nil {
		e.cfg.Hold(longest)
		v.Waited = longest
		return
	}
	rest := longest - e.cfg.Now().Sub(from)
	deadline, bounded := ctx.Deadline()
	if bounded && time.Until(deadline)-leastMargin < rest || !e.queue.hold(ctx, rest) {
		e.refuseLate(v, at, longest-e.cfg.Now().Sub(from))
	}
	v.Waited = e.cfg.Now().Sub(from)
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
// rest. All that it took is given back, and the verdict is as if that limit had refused it in the first place.
func (e *Engine) refuseLate(v *Verdict, at int, rest time.Duration) {
	e.refundAll(v.Match.Domain, &v.request, true)
	for i := range v.Decisions {
		v.Decisions[i].Wait = 0
	}
	v.Decisions[at].Outcome, v.Decisions[at].RetryAfter = limit.Refused, max(rest, 1)
	e.fold(v)
}

// hold waits until a token is due. It reports false when it could not: the caller hung up first, too many others wait,
// or waits end before.
func (q *queue) hold(ctx context.Context, wait time.Duration) bool {
	defer q.waiting.Add(-1)
	if q.waiting.Add(1) > q.bound {
		q.turned.Add(1)
		return false
	}
	due, timer := time.Now().Add(wait), time.NewTimer(wait)
	defer timer.Stop()
	for {
		end := q.end.Load()
		if due.After(end.at) {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		case <-end.moved:
		}
	}
}
