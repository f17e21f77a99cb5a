package store

import (
	"context"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
)

// mostRequests is how many requests one batch may have.
const mostRequests = 64

// batch is what goes to one server together.
type batch struct {
	server  *redis.Server
	pending []*redis.Pending
	charges int
	loans   []*loan // of these requests, those of leases
}

// dispatch sends the trips of the round, those of one server together, so that they leave in one batch where they fit into one.
func (q *question) dispatch(ctx context.Context) {
	for i, first := range q.trips {
		if first.sent || first.round != q.round {
			continue
		}
		q.batch.server = first.server
		for _, t := range q.trips[i:] {
			if t.server == first.server && t.round == q.round && !t.sent {
				q.store.encode(ctx, t, q.refused, q.due)
				q.batch.addTrip(q.store, t)
			}
		}
		q.batch.flush()
	}
}

// addTrip adds a trip and the requests of leases around it, which stay beside it unless all of them together are too large for a batch.
func (b *batch) addTrip(r *Redis, t *trip) {
	around := len(t.before) + len(t.after)
	if len(b.pending)+around+1 > mostRequests || b.charges+around+len(t.charges) > limit.MaxTogether {
		b.flush()
	}
	for _, request := range t.before {
		b.addLoan(r.newLoan(request, t.script, false))
	}
	b.add(&t.pending)
	for _, request := range t.after {
		b.addLoan(r.newLoan(request, t.script, true))
	}
}

func (b *batch) add(p *redis.Pending) {
	if len(b.pending) == mostRequests || b.charges+p.Charges > limit.MaxTogether {
		b.flush()
	}
	b.pending, b.charges = append(b.pending, p), b.charges+p.Charges
}

func (b *batch) addLoan(l *loan) {
	b.add(&l.pending)
	b.loans = append(b.loans, l)
}

// flush sends the batch. No caller waits for the requests of leases.
func (b *batch) flush() {
	if len(b.pending) > 0 {
		b.server.Do(b.pending...)
	}
	for _, l := range b.loans {
		l.leave()
	}
	clear(b.pending)
	clear(b.loans)
	b.pending, b.loans, b.charges = b.pending[:0], b.loans[:0], 0
}
