package store

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// A request whose charges live in several homes, or are more than one call may have, goes in several trips. All homes are
// asked at once, each for its part, and each takes what it can. If one of them refuses, what the others took is given
// back, so that it is all or nothing once the answer is out.
//
// Meanwhile others may find less on a counter than there is in the end, and be refused: for as long as these two trips
// take. The reverse never happens: nothing is given to a counter before it is known to be due, nor after the window in
// which it was taken.

const (
	atOnce       = 2       // trips of one request to one home at the same time; requests of others go in between
	refundsRound = 1 << 20 // the first round of refunds, behind all others
)

// home is where charges live: those of one home may go in one run of a script.
type home struct {
	server *redis.Server
	slot   int
}

// clientOf is what reaches a charge's counter.
func (r *Redis) clientOf(c *limit.Charge) *redis.Client {
	if r.cfg.PerSecond != nil && c.Limit.Window <= time.Second {
		return r.cfg.PerSecond
	}
	return r.cfg.Main
}

// homeOf is where a charge lives now.
func (r *Redis) homeOf(c *limit.Charge) home {
	client := r.clientOf(c)
	return home{client.Server(c.Key), client.Slot(c.Key)}
}

// divide makes the trips of all charges that are not known. One that has all charges uses the request's own.
func (q *question) divide() {
	charges, decisions := q.request.Charges, q.request.Decisions
	var first home
	together, n := true, 0
	for i := range charges {
		if decisions[i].Outcome != limit.Undecided {
			continue
		}
		h := q.store.homeOf(&charges[i])
		if n == 0 {
			first = h
		}
		together = together && h == first
		n++
	}
	together = together && n <= limit.MaxTogether
	switch {
	case n == 0:
	case together && n == len(charges):
		t := q.newTrip(first)
		t.charges, t.decisions = charges, decisions
	default:
		q.split(together)
	}
}

func (q *question) newTrip(h home) *trip {
	t := q.store.trips.Get().(*trip)
	t.home = h
	q.trips = append(q.trips, t)
	return t
}

// split sorts charges by where they live. Refunds come last: one that is given and then has to be taken back, because the
// request is refused elsewhere, would be spent by others in between. So a charge does not profit from a refund to its own
// counter in the same request, as it would in one trip. Quotas do not refuse a part of a request, only all of it.
func (q *question) split(together bool) {
	type place struct {
		home
		refund bool
	}
	open, made := map[place]*trip{}, map[place]int{}
	for i, c := range q.request.Charges {
		if q.request.Decisions[i].Outcome != limit.Undecided {
			continue
		}
		at := place{q.store.homeOf(&c), !together && c.Op == limit.Refund && !c.Each}
		if c.Mode == limit.Quota && !together {
			c.Mode = limit.Shadow
		}
		t := open[at]
		if t == nil || len(t.charges) == limit.MaxTogether {
			t = q.newTrip(at.home)
			t.round = made[at] / atOnce
			if at.refund {
				t.round += refundsRound
			}
			made[at]++
			open[at] = t
		}
		t.charges, t.places = append(t.charges, c), append(t.places, i)
	}
}

// giveBack returns what the trips of a refused request took, and enters that into the decisions. The answer waits for it
// no longer than its patience lasts, but the giving back goes on.
func (q *question) giveBack(ctx context.Context) {
	asked := q.trips
	for _, t := range asked {
		q.undo(t)
	}
	q.refused = false
	if !q.send(ctx) {
		return
	}
	for _, t := range q.trips[len(asked):] {
		q.await(t)
		if !t.left {
			q.store.countNotReturned(t.charges, t.decisions)
		}
		for i, place := range t.places {
			d, after := &q.request.Decisions[place], &t.decisions[i]
			d.Charged, d.Wait = 0, 0
			if after.Outcome != limit.Undecided {
				d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
			}
		}
	}
}

// undo makes the trip that gives back what a trip took. Charges with Each stay, as they would in one trip. What a trip
// took whose caller left is not known; its late reply shows that.
func (q *question) undo(t *trip) {
	var back *trip
	for i, c := range t.charges {
		took := &t.decisions[i]
		if c.Each || took.Charged <= 0 {
			continue
		}
		if back == nil {
			back = q.newTrip(t.home)
			back.round, back.undoes = q.round+1, true
		}
		back.charges = append(back.charges, limit.Charge{
			Key: c.Key, Limit: c.Limit, Cost: took.Charged, Op: limit.Refund, Until: limit.RefundUntil(c.Limit, took),
		})
		back.places = append(back.places, t.places[i])
	}
}

// countNotReturned counts what could not be given back. It stays taken until time gives it back, and is not given back
// again: it is not known whether it was.
func (r *Redis) countNotReturned(charges []limit.Charge, decisions []limit.Decision) {
	for i := range decisions {
		if decisions[i].Outcome == limit.Undecided {
			r.notReturned.Add(charges[i].Cost)
		}
	}
}
