package engine

import (
	"context"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Stats is what an Engine counts about itself.
type Stats struct {
	Waiting             int64 `metric:"throttle_waiting" help:"Throttled answers that are held."`
	TurnedAway          int64 `metric:"throttle_turned_away_total" help:"Requests refused because too many waited."`
	ReservationsDropped int64 `metric:"reservations_dropped_total" help:"Reservations without room: they stay charged."`
	RefundsFailed       int64 `metric:"give_back_failed_total" help:"Charges of refused requests not given back."`
	OverAdmitted        int64 // charges that the store refused after their request had been admitted without it
}

// Stats returns the counts of this Engine.
func (e *Engine) Stats() Stats {
	return Stats{
		Waiting: e.queue.waiting.Load(), TurnedAway: e.queue.turned.Load(),
		ReservationsDropped: e.reserved.dropped.Load(),
		RefundsFailed:       e.unreturned.Load(), OverAdmitted: e.over.Load(),
	}
}

// Usage returns what is left on each charge's counter, as the store has it, or had it a moment ago where that will do.
// It takes nothing.
func (e *Engine) Usage(ctx context.Context, charges []limit.Charge, mayLag bool) []limit.Decision {
	r := limit.Request{Charges: slices.Clone(charges), MayLag: mayLag}
	for i := range r.Charges {
		r.Charges[i].Op = limit.Peek
	}
	e.peek(ctx, e.cfg.Store, &r)
	return r.Decisions
}

// OwnShare returns what is left on this sidecar's share of a limit, which decides while the store is away. It reports
// false where the rule does not count then.
func (e *Engine) OwnShare(ctx context.Context, c *descriptors.Counter) (d limit.Decision, counts bool) {
	if e.cfg.Share == nil || c.Effect.OnFailure != descriptors.FailLocal {
		return d, false
	}
	r := limit.Request{Charges: []limit.Charge{c.Charge}}
	r.Charges[0].Op, r.Charges[0].Limit = limit.Peek, shareOf(c.Charge.Limit, e.liveOf(c.Domain))
	e.peek(ctx, e.cfg.Share, &r)
	return r.Decisions[0], true
}

// peek asks a Counter for what is left. Where it panics the decisions are undecided.
func (e *Engine) peek(ctx context.Context, c Counter, r *limit.Request) {
	r.Decisions, r.Due = resize(r.Decisions, len(r.Charges)), dueOf(ctx)
	if len(r.Charges) > 0 && !Guard(e.cfg.OnPanic, func() { c.Peek(ctx, r) }) {
		clear(r.Decisions)
	}
}

// Reset makes the counters of these keys full, and ends the penalties of theirs, in the store and here.
func (e *Engine) Reset(ctx context.Context, keys []string) error {
	err := e.cfg.Store.Reset(ctx, keys)
	e.Forget(ctx, keys)
	return err
}

// Forget drops what this sidecar counts itself, beside the store, because these keys were reset.
func (e *Engine) Forget(ctx context.Context, keys []string) {
	if e.cfg.Share != nil {
		_ = e.cfg.Share.Reset(ctx, keys) // memory never fails
	}
}
