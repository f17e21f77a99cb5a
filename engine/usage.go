package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// Usage returns what is left on each charge's counter, as the store has it. It takes nothing.
func (e *Engine) Usage(ctx context.Context, charges []limit.Charge) []limit.Decision {
	p := &part{charges: charges}
	e.usage(ctx, e.cfg.Store, p)
	return p.decisions
}

// Reset makes the counters of these keys full, and ends the penalties of theirs, in the store and here.
func (e *Engine) Reset(ctx context.Context, keys []string) error {
	err := e.cfg.Store.Reset(ctx, keys)
	e.Forget(ctx, keys)
	return err
}

// Forget drops what this sidecar counts itself, beside the store, and what it owes the store, because these keys were reset.
func (e *Engine) Forget(ctx context.Context, keys []string) {
	e.debts.forgive(keys)
	if e.cfg.Fallback != nil {
		_ = e.cfg.Fallback.Reset(ctx, keys) // memory never fails
	}
}

// Known returns the records of an identity, as a decision would look them up; nil: there are none.
func (e *Engine) Known(ctx context.Context, domain string, who *descriptors.Who) *descriptors.Records {
	found := new(descriptors.Records)
	if e.cfg.Records == nil || !e.cfg.Records.Any(domain) || !e.cfg.Records.Look(ctx, domain, who, found) {
		return nil
	}
	return found
}
