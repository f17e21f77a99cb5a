package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Records has what is known about identities beside the rules.
type Records interface {
	// Any reports whether there are records in a domain. It is asked for each request and must not block.
	Any(domain string) bool
	// Look fills in the records of those who ask, and reports whether there are any. It waits for the store at most as
	// long as the caller can, and then answers with what it knows.
	Look(ctx context.Context, domain string, who *descriptors.Who, found *descriptors.Records) bool
}

// consult looks up what is known about who asks, where there are records in the domain at all.
func (e *Engine) consult(ctx context.Context, set *descriptors.Set, v *Verdict) {
	req := v.asked
	req.Records = nil
	if e.cfg.Records == nil || !e.cfg.Records.Any(req.Domain) || set.Domain(req.Domain) == nil {
		return
	}
	set.Who(req, &v.Match, &v.who)
	if e.cfg.Records.Look(ctx, req.Domain, &v.who, &v.records) {
		req.Records = &v.records
	}
}

// Known returns the records of an identity, as a decision would look them up; nil without any.
func (e *Engine) Known(ctx context.Context, domain string, who *descriptors.Who) *descriptors.Records {
	found := new(descriptors.Records)
	if e.cfg.Records == nil || !e.cfg.Records.Any(domain) || !e.cfg.Records.Look(ctx, domain, who, found) {
		return nil
	}
	return found
}
