package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// pay sends requests that are paid for when they are done.
func (w *world) pay(ctx context.Context, r *rand.Rand, p *loadPlan) {
	for pause(ctx, time.Duration(r.ExpFloat64()*float64(200*time.Millisecond))) && w.since() < w.s.lasts {
		c := w.newCall(r, p, fmt.Sprintf("u%d", r.IntN(p.domain.users)))
		c.cost = 0
		w.ask(c, 0)
		if c.over || c.ended == 0 || !pause(ctx, time.Duration(r.ExpFloat64()*float64(50*time.Millisecond))) {
			continue
		}
		bill := w.newCall(r, p, c.user)
		bill.sidecar, bill.cost = c.sidecar, 1+r.Int64N(mostPaid)
		w.ask(bill, 0)
	}
}

// mostPaid is the highest cost of a request that is paid for afterwards.
const mostPaid = 12

// misbehave is a client that asks in bursts whether it is refused or not, and at times leaves the counter alone.
func (w *world) misbehave(ctx context.Context, r *rand.Rand, p *loadPlan, user string) {
	for w.since() < w.s.lasts {
		for range 4 + r.IntN(8) {
			if !pause(ctx, time.Duration(r.ExpFloat64()*float64(80*time.Millisecond))) {
				return
			}
			w.ask(w.newCall(r, p, user), 0)
		}
		if !pause(ctx, time.Duration(r.ExpFloat64()*float64(2*time.Second))) {
			return
		}
	}
}
