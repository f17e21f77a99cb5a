package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// load sends the calls of one group of callers until the context ends.
func (w *world) load(ctx context.Context, number uint64, p *loadPlan) {
	r := w.s.stream(ofLoads + number)
	pause(ctx, 100*time.Millisecond+time.Duration(r.Float64()*float64(time.Second)))
	callers := w.newCrew()
	defer callers.Wait()
	switch p.kind {
	case "open", "many":
		w.openLoop(ctx, r, p, callers)
	case "rush":
		w.rush(ctx, r, p, callers)
	case "closed":
		for i := range int(p.rate) {
			own := w.s.stream(ofLoads + 1000*number + uint64(i) + 1000)
			callers.Go(func() { w.closedLoop(ctx, own, p) })
		}
	case "paid":
		for i := range int(p.rate) {
			own := w.s.stream(ofLoads + 1000*number + uint64(i) + 1000)
			callers.Go(func() { w.pay(ctx, own, p) })
		}
	case "punished":
		for i := range p.domain.users {
			own := w.s.stream(ofLoads + 1000*number + uint64(i) + 1000)
			callers.Go(func() { w.misbehave(ctx, own, p, fmt.Sprintf("u%d", i)) })
		}
	case "polite":
		w.polite(ctx, r, p)
	case "refund":
		w.refunds(ctx, r, p)
	}
}

// pause waits, and reports whether the load continues.
func pause(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// openLoop sends calls at random, and does not wait for those before. After the faults it sends a quarter of them.
func (w *world) openLoop(ctx context.Context, r *rand.Rand, p *loadPlan, callers *crew) {
	for {
		rate := p.rate
		if w.since() > w.s.lasts {
			rate /= 4
		}
		if !pause(ctx, time.Duration(r.ExpFloat64()/rate*float64(time.Second))) {
			return
		}
		user := fmt.Sprintf("u%d", r.IntN(p.domain.users))
		if p.kind == "many" {
			user = fmt.Sprintf("m%d", r.IntN(10_000))
		}
		c := w.newCall(r, p, user)
		leave := time.Duration(0)
		if r.Float64() < p.leave {
			leave = time.Duration(r.ExpFloat64() * 3 * float64(time.Millisecond))
		}
		callers.Go(func() { w.ask(c, leave) })
	}
}

// rush sends many calls at once around the end of each window.
func (w *world) rush(ctx context.Context, r *rand.Rand, p *loadPlan, callers *crew) {
	window := p.domain.window
	for w.since() < w.s.lasts {
		ends := time.Now().Truncate(window).Add(window)
		if !pause(ctx, time.Until(ends)-20*time.Millisecond) {
			return
		}
		for range int(p.rate * 2 * r.Float64()) { // of another size each time
			c := w.newCall(r, p, "u0")
			early := time.Duration(r.Float64() * float64(40*time.Millisecond))
			if p.after {
				early = 20*time.Millisecond + early/2
			}
			callers.Go(func() {
				if pause(ctx, early) {
					w.ask(c, 0)
				}
			})
		}
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// closedLoop sends a call when the one before has its answer.
func (w *world) closedLoop(ctx context.Context, r *rand.Rand, p *loadPlan) {
	for pause(ctx, time.Duration((2+40*r.ExpFloat64())*float64(time.Millisecond))) && w.since() < w.s.lasts {
		w.ask(w.newCall(r, p, "u0"), 0)
	}
}

// polite has a counter of its own, spends it, and comes back after retry-after.
func (w *world) polite(ctx context.Context, r *rand.Rand, p *loadPlan) {
	user, cost := "polite", max(1, p.domain.count/4)
	var before *call
	alone := time.Duration(0) // until when Redis may charge what it did not decide in time
	for {
		c := w.newCall(r, p, user)
		c.cost = min(cost, p.domain.burst)
		w.ask(c, 0)
		if c.degraded != "" {
			alone = c.ended + promised.arrives
		}
		if c.began >= alone {
			w.keptWaiting(before, c)
		}
		before = nil
		wait := 150 * time.Millisecond
		if c.over && c.degraded == "" {
			before, wait = c, time.Duration(c.retry)*time.Second
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// refunds spends a counter, and gives back some of it.
func (w *world) refunds(ctx context.Context, r *rand.Rand, p *loadPlan) {
	for pause(ctx, time.Duration(r.ExpFloat64()/p.rate*float64(time.Second))) {
		c := w.newCall(r, p, "r")
		c.cost = 1 + r.Int64N(5)
		w.ask(c, 0)
		if !c.over && c.degraded == "" && r.IntN(3) == 0 && pause(ctx, 5*time.Millisecond) {
			back := w.newCall(r, p, "r")
			back.cost = -c.cost
			w.ask(back, 0)
		}
	}
}

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }
