package engine

import (
	"context"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

const (
	// excessCharges is the reason for which a request is refused that asks for too many charges, all or none.
	excessCharges = "charges"
	// excessPath is the reason for one with a path that is long, and that servers read in different ways.
	excessPath = "path"
)

// excessResponse is what its client reads.
var excessResponse = &descriptors.Response{Message: "The request asks for more than one request may."}

// match finds what applies, and reports whether charges for it are to be made.
func (e *Engine) match(ctx context.Context, req *descriptors.Request, v *Verdict) (counts bool) {
	if req.Excess != "" {
		v.Match.Reset()
		v.exceeds(req.Excess)
		return false
	}
	set := e.set.Load()
	if set == nil {
		v.Match = descriptors.Match{}
		return false
	}
	if !identify(ctx, set, req, v) {
		return false
	}
	e.consult(ctx, set, req, v)
	set.Match(req, &v.Match)
	switch {
	case v.Match.LongPath:
		v.exceeds(excessPath)
		return false
	case tooMany(v.Match.Charges):
		v.exceeds(excessCharges)
		return false
	}
	v.Decisions = resize(v.Decisions, len(v.Match.Charges))
	return v.Match.Block == nil && v.Match.Exempt == nil
}

// identify resolves the evidence of a request into its subject, under the rules of its domain, and reports whether the
// request can be decided on. One that contradicts itself is refused for that.
func identify(ctx context.Context, set *descriptors.Set, req *descriptors.Request, v *Verdict) bool {
	if req.Evidence == nil || req.Subject == nil {
		return true
	}
	domain := set.Domain(req.Domain)
	if domain == nil {
		return true
	}
	peer := req.Evidence.Peer
	client, refusal := identity.Client{Address: peer, AddressTrusted: peer.IsValid()}, (*identity.Refusal)(nil)
	if domain.Identity != nil {
		client, refusal = domain.Identity.ResolveWithin(ctx, req.Evidence)
	}
	req.Subject.Client, v.Client = client, client
	if refusal == nil {
		refusal = req.Subject.Check()
	}
	if refusal == nil {
		return true
	}
	v.Match.Reset()
	v.Match.Known = true
	v.Refused, v.Malformed = true, refusal
	return false
}

// exceeds refuses a request that asks for more than one may. Nothing is charged, and its first descriptor is over the
// limit.
func (v *Verdict) exceeds(reason string) {
	known, domain := v.Match.Known, v.Match.Domain
	v.Match.Reset()
	v.Match.Known, v.Match.Domain = known, domain
	v.Refused, v.Excess, v.RetryAfter, v.Response = true, reason, closedRetry, excessResponse
	if len(v.Statuses) > 0 {
		v.Statuses[0].Over = true
	}
}

// tooMany reports whether more charges than one call of the store can have are to be made all or none.
func tooMany(charges []limit.Charge) bool {
	if len(charges) <= limit.MaxTogether {
		return false
	}
	together := 0
	for i := range charges {
		if !charges[i].Each {
			together++
		}
	}
	return together > limit.MaxTogether
}

// setQuotas sees to quotas that always have room: beside one of them no other can refuse the request, so their refusals
// count as shadow, though they are reported.
func (e *Engine) setQuotas(v *Verdict) {
	room := false
	if e.cfg.Quota {
		room = v.quotaMode()
	} else {
		room = slices.ContainsFunc(v.Match.Terms, func(t descriptors.Term) bool { return t.Effect.QuotaToo })
	}
	for i := range v.Match.Charges {
		if room && v.Match.Charges[i].Mode == limit.Quota {
			v.Match.Charges[i].Mode = limit.Shadow
		}
	}
}

// quotaMode puts all descriptors of trees into quota mode, and reports whether one always has room: no tree limits it,
// or only in shadow. One that a tree lets pass without limit is left out. A scoped rule that is unlimited has no
// effect.
func (v *Verdict) quotaMode() (room bool) {
	for i := range v.Match.Terms {
		t := &v.Match.Terms[i]
		if t.Descriptor >= 0 && t.Effect.Tree && t.Effect.Mode != limit.Shadow {
			v.Match.Charges[i].Mode, v.Statuses[t.Descriptor].tree = limit.Quota, true
		}
	}
	for i := range v.Match.Unlimited {
		t := &v.Match.Unlimited[i]
		if t.Descriptor >= 0 && t.Effect.Tree {
			v.Statuses[t.Descriptor].tree = true
		}
	}
	return slices.ContainsFunc(v.Statuses, func(s Status) bool { return !s.tree })
}
