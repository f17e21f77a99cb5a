// Package engine decides: it matches a request, asks the store once, decides by each rule's failure policy what the
// store could not, and folds the decisions to one verdict. Shadow and quota mode of the whole sidecar are here, too.
package engine

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Counter keeps counts. A decision that it could not make stays Undecided with a reason.
type Counter interface {
	// Try decides a request without waiting, or changes nothing and reports false.
	Try(r *limit.Request) bool
	// Ask decides requests that Try did not. A request waits no longer than its Due.
	Ask(ctx context.Context, requests ...*limit.Request)
	// Peek fills in what is left, and what would be decided, for charges that all peek.
	Peek(ctx context.Context, r *limit.Request)
	// Reset makes the counters of these keys full again.
	Reset(ctx context.Context, keys []string) error
}

// Config sets up an Engine. Store is required.
type Config struct {
	Store Counter // the truth
	// Share decides in this process for rules with the failure policy `local` what Store left undecided. It counts
	// nothing else. Its clock should be that of Clock. Nil: those rules fail open.
	Share Counter
	Clock *Clock // learns from the decisions what time it is at the store; nil: the engine has its own
	// Live is how many sidecars with rules for a domain share Store, as last known: Share hands out that part of a
	// limit. It is called for each request that Share counts, and must not block. Nil, or less than 1, means 1.
	Live          func(domain string) int
	ReservedBytes int64 // memory that reservations of post-paid requests may take; 0: 40 MiB
	Shadow        bool  // the whole sidecar counts and refuses nothing
	Quota         bool  // every descriptor of a tree is in quota mode
	// throttled requests that may wait at once; 0 means 10,000. Others are refused unless they are due
	Waiters  int
	Now      func() time.Time
	Profiles Profiles // what is known about identities beside the rules; nil: nothing
	// Hold, where given, takes the place of waiting for a throttled request's token, on clocks that are not the
	// machine's. Verdicts have that wait as Waited. Nil: the answer is held in real time.
	Hold      func(wait time.Duration)
	Observers []Observer
	// OnDecide, where given, changes the context of a decision: that of the store, and of the observers.
	OnDecide func(ctx context.Context) context.Context
	Timed    bool // verdicts have Began and Took
	// OnOverAdmitted is called for each charge that the store refused after its request had been admitted, because the
	// reply came too late. It must not block.
	OnOverAdmitted func(domain *descriptors.CompiledDomain, effect *descriptors.Effect)
	OnPanic        func(recovered any) // sees what was recovered; the request is answered all the same
}

// Observer sees each verdict before its door does, and all that the verdict carries. It must not block, nor keep what
// it gets, and changes nothing but its ID. A panic of it changes neither the verdict nor what other observers see.
type Observer func(ctx context.Context, req *descriptors.Request, v *Verdict)

// Engine decides requests under the rule set in use. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	set      atomic.Pointer[descriptors.Set]
	queue    queue
	reserved reservations

	refunds    chan struct{} // a place for each refund that runs in the background
	closing    sync.Once
	unreturned atomic.Int64 // charges that could not be given back
	over       atomic.Int64 // charges that the store refused after their request had been admitted
}

// New returns an Engine without rules: until Use every domain is unknown, which admits.
func New(cfg Config) *Engine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Clock = cmp.Or(cfg.Clock, NewClock(cfg.Now))
	cfg.Waiters = cmp.Or(max(cfg.Waiters, 0), defaultWaiters)
	if cfg.OnOverAdmitted == nil {
		cfg.OnOverAdmitted = func(*descriptors.CompiledDomain, *descriptors.Effect) {}
	}
	if cfg.OnPanic == nil {
		cfg.OnPanic = func(any) {}
	}
	e := &Engine{cfg: cfg, reserved: newReservations(cfg.ReservedBytes)}
	e.refunds = make(chan struct{}, max(cfg.Waiters, leastRefunds))
	e.queue.bound = int64(cfg.Waiters)
	e.queue.end.Store(&waitsEnd{time.Unix(1<<40, 0), make(chan struct{})}) // they do not
	return e
}

// Close waits for the refunds that run in the background, and lets no further one begin.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		for range cap(e.refunds) {
			e.refunds <- struct{}{}
		}
	})
	return nil
}

// Use makes set the rule set in use, for all requests that begin from now on.
func (e *Engine) Use(set *descriptors.Set) { e.set.Store(set) }

// Rules returns the rule set in use, or nil before the first Use.
func (e *Engine) Rules() *descriptors.Set { return e.set.Load() }

// Decide fills v with what req gets. It always decides: trouble is answered by the failure policy of the rules that
// matched, and by admission where none had matched yet.
func (e *Engine) Decide(ctx context.Context, req *descriptors.Request, v *Verdict) {
	if e.cfg.OnDecide != nil {
		ctx = e.cfg.OnDecide(ctx)
	}
	if !e.Begin(ctx, req, v) {
		e.Finish(ctx, v)
	}
}

// Begin decides req without waiting, if that is possible, and reports whether it did. If not, Finish has to be called,
// and v keeps req until then.
func (e *Engine) Begin(ctx context.Context, req *descriptors.Request, v *Verdict) (done bool) {
	v.reset(req)
	if e.cfg.Timed {
		v.Began = e.cfg.Now()
	}
	e.step(ctx, v, func() { e.begin(ctx, v) })
	return v.done
}

// Finish decides what Begin left: it asks the store once for all verdicts together, and holds throttled answers. All
// are done when it returns.
func (e *Engine) Finish(ctx context.Context, verdicts ...*Verdict) {
	var requests []*limit.Request
	for _, v := range verdicts {
		if !v.done && !v.decided {
			requests = append(requests, &v.request)
		}
	}
	e.ask(ctx, e.cfg.Store, requests...)
	decided := e.cfg.Now()
	for _, v := range verdicts {
		e.step(ctx, v, func() { e.finish(ctx, v) })
	}
	for _, v := range verdicts {
		e.step(ctx, v, func() {
			e.wait(ctx, v, decided)
			e.end(ctx, v)
		})
	}
}

// step runs a step of a verdict that is not done. If it panics, the rules' policies decide.
func (e *Engine) step(ctx context.Context, v *Verdict, step func()) {
	if !v.done && !Guard(e.cfg.OnPanic, step) {
		e.afterPanic(v)
		e.end(ctx, v)
	}
}

// Guard calls f and reports whether f returned. A panic goes to onPanic: an answer must not depend on it.
func Guard(onPanic func(fault any), f func()) (returned bool) {
	defer func() {
		if fault := recover(); fault != nil {
			onPanic(fault)
		}
	}()
	f()
	return true
}

// begin ends the verdict where nothing has to be waited for: the store, a token that is due later, a penalty's record.
func (e *Engine) begin(ctx context.Context, v *Verdict) {
	if e.match(ctx, v) {
		e.boundWaits(ctx, v)
		e.setQuotas(v)
		e.settle(v)
		v.request = limit.Request{Charges: v.Match.Charges, Decisions: v.Decisions}
		v.decided = e.cfg.Store.Try(&v.request)
		if !v.decided {
			v.request.Due = dueOf(ctx)
			return
		}
		e.learnTime(v)
		if _, wait := v.longestWait(); wait > 0 || v.offends() {
			return
		}
	}
	e.fold(v)
	e.end(ctx, v)
}

// finish is all that follows from the reply of the store, but for holding the answer.
func (e *Engine) finish(ctx context.Context, v *Verdict) {
	if !v.decided {
		e.learnTime(v)
		e.degrade(ctx, v)
	}
	e.punish(ctx, v)
	e.fold(v)
}

// dueOf is when a question has to be answered: four fifths of the caller's time are for it, and the rest for the
// answer's way back. It is zero without a deadline of the caller.
func dueOf(ctx context.Context) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Now().Add(time.Until(deadline) * 8 / 10)
	}
	return time.Time{}
}

// ask asks a Counter. What a panic leaves behind may have been charged.
func (e *Engine) ask(ctx context.Context, c Counter, requests ...*limit.Request) {
	if len(requests) == 0 || Guard(e.cfg.OnPanic, func() { c.Ask(ctx, requests...) }) {
		return
	}
	for _, r := range requests {
		for i := range r.Decisions {
			r.Decisions[i] = limit.Decision{Reason: "panic", Unknown: true}
		}
	}
}

// learnTime learns from the decisions what time it is at the store, also for limits with windows of a calendar.
func (e *Engine) learnTime(v *Verdict) {
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.At == 0 || d.Held || d.Cached {
			continue
		}
		e.cfg.Clock.learn(d.At)
		if v.Match.Charges[i].Limit.Calendar != nil {
			v.Match.Domain.ObserveTime(d.At)
		}
	}
}

// end completes a verdict that stands, and shows it to the observers.
func (e *Engine) end(ctx context.Context, v *Verdict) {
	v.done = true
	Guard(e.cfg.OnPanic, func() {
		if v.crowded && v.Refused && v.Refusing.Action == descriptors.Throttle {
			e.queue.turned.Add(1)
		}
		e.reserve(v)
		e.follow(v)
	})
	if e.cfg.Timed {
		v.Took = e.cfg.Now().Sub(v.Began)
	}
	for _, observe := range e.cfg.Observers {
		Guard(e.cfg.OnPanic, func() { observe(ctx, v.asked, v) })
	}
	v.asked = nil
}
