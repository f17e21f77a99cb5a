package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Profiles has what is known about identities beside the rules.
type Profiles interface {
	// Any reports whether there are profiles in a domain. It is asked for each request and must not block.
	Any(domain string) bool
	// Look fills in the profiles of those who ask, and reports whether there are any. It waits for the store at most as
	// long as the caller can, and then answers with what it knows.
	Look(ctx context.Context, domain string, who *descriptors.Who, found *descriptors.Profiles) bool
}

// consult looks up what is known about who asks, where there are profiles in the domain at all.
func (e *Engine) consult(ctx context.Context, set *descriptors.Set, v *Verdict) {
	req := v.asked
	req.Profiles = nil
	if e.cfg.Profiles == nil || !e.cfg.Profiles.Any(req.Domain) || set.Domain(req.Domain) == nil {
		return
	}
	set.Who(req, &v.Match, &v.who)
	if e.cfg.Profiles.Look(ctx, req.Domain, &v.who, &v.profiles) {
		req.Profiles = &v.profiles
	}
}

// Known returns the profiles of an identity, as a decision would look them up; nil without any.
func (e *Engine) Known(ctx context.Context, domain string, who *descriptors.Who) *descriptors.Profiles {
	found := new(descriptors.Profiles)
	if e.cfg.Profiles == nil || !e.cfg.Profiles.Any(domain) || !e.cfg.Profiles.Look(ctx, domain, who, found) {
		return nil
	}
	return found
}
