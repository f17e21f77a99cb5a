package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// A request whose charges live in several homes, or are more than one call may have, goes in several trips. All homes
// are asked at once, and each takes what it can. If one of them refuses, what the others took is given back. Meanwhile
// others may find less on a counter than there is in the end, and be refused. Never do they find more.

const (
	atOnce      = 2       // trips of one request to one home in a round; requests of others go in between
	refundsTurn = 1 << 20 // the first turn of refunds, behind all others
)

// home is where charges live: those of one home may go in one run of a script.
type home struct {
	server *redis.Server
	slot   int
}

// clientOf is what reaches a charge's counter.
func (r *Redis) clientOf(c *limit.Charge) *redis.Client {
	if c.Limit.Window <= time.Second {
		return r.cfg.PerSecond
	}
	return r.cfg.Main
}

// homeOf is where a charge lives now.
func (r *Redis) homeOf(c *limit.Charge) home {
	client := r.clientOf(c)
	return home{client.Server(c.Key), client.Slot(c.Key)}
}

// spot is a charge of a request, by its place there, and where it lives.
type spot struct {
	home
	charge int
}

// split finds the charges that are not known, and reports whether they do not fit into one trip.
func (q *question) split() bool {
	q.open = q.open[:0]
	for i := range q.request.Charges {
		if q.request.Decisions[i].Outcome == limit.Undecided {
			q.open = append(q.open, spot{q.store.homeOf(&q.request.Charges[i]), i})
		}
	}
	return len(q.open) > limit.MaxTogether ||
		slices.ContainsFunc(q.open, func(s spot) bool { return s.home != q.open[0].home })
}

// place is where charges of a split request go together. Refunds come last: one that is given and then has to be taken
// back, because the request is refused elsewhere, would be spent by others in between. So a charge does not profit from
// a refund to its own counter in the same request, as it would in one trip.
type place struct {
	home
	turn int // the first of trips to it
}

// divide sorts the charges that are not known into trips, those of one round and server side by side. Quotas do not
// refuse a part of a request, only all of it.
func (q *question) divide() {
	split, last := q.split(), map[place]*trip{}
	for _, s := range q.open {
		c, at := q.request.Charges[s.charge], place{home: s.home}
		if split && c.Op == limit.Refund && !c.Each {
			at.turn = refundsTurn
		}
		if split && c.Mode == limit.Quota {
			c.Mode = limit.Shadow
		}
		t := last[at]
		switch {
		case t == nil:
			t = q.newTrip(at.home, at.turn)
		case len(t.places) == limit.MaxTogether:
			t = q.newTrip(at.home, t.turn+1)
		}
		last[at] = t
		t.part.Charges, t.places = append(t.part.Charges, c), append(t.places, s.charge)
	}
	slices.SortStableFunc(q.trips, func(a, b *trip) int {
		return cmp.Or(cmp.Compare(a.round(), b.round()), cmp.Compare(a.server.Name(), b.server.Name()))
	})
}

func (q *question) newTrip(h home, turn int) *trip {
	t := &q.first
	if len(q.trips) > 0 {
		t = &trip{}
	}
	t.question, t.home, t.turn = q, h, turn
	q.trips = append(q.trips, t)
	return t
}

// undo returns what a refused request took, and enters that into its decisions. Charges with Each stay, as they
// would in one trip. What a trip took whose caller left is not known; its late reply shows that. The answer waits no
// longer than its patience lasts, but all is given back.
func (q *question) undo(ctx context.Context) {
	back, taken := &limit.Request{Due: q.due}, []*limit.Decision(nil)
	for i := range q.request.Charges {
		c, d := &q.request.Charges[i], &q.request.Decisions[i]
		if c.Each || d.Charged <= 0 {
			continue
		}
		back.Charges = append(back.Charges, limit.Charge{
			Key: c.Key, Limit: c.Limit, Cost: d.Charged, Op: limit.Refund, Until: limit.RefundUntil(c.Limit, d),
		})
		d.Charged, d.Wait = 0, 0
		taken = append(taken, d)
	}
	back.Decisions = make([]limit.Decision, len(taken))
	q.store.begin(ctx, back, undoing).finish(ctx)
	for i, d := range taken {
		if after := back.Decisions[i]; after.Outcome != limit.Undecided {
			d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
		}
	}
}
