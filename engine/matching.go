package engine

import (
	"context"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Why a request is refused that asks for more than one may.
const (
	excessCharges = "charges" // too many, all or none
	excessPath    = "path"    // it is long, and servers read it in different ways
)

var excessResponse = &descriptors.Response{Message: "The request asks for more than one request may."}

// match finds what applies, and reports whether there are charges to make.
func (e *Engine) match(ctx context.Context, v *Verdict) (counts bool) {
	req, set := v.asked, e.set.Load()
	v.Excess = req.Excess
	if v.Excess != "" || set == nil {
		return false
	}
	v.Malformed = identify(ctx, set, v)
	if v.Malformed != nil {
		v.Match.Known = true
		return false
	}
	e.consult(ctx, set, v)
	set.Match(req, &v.Match)
	switch {
	case v.Match.LongPath:
		v.Excess = excessPath
	case tooMany(v.Match.Charges):
		v.Excess = excessCharges
	}
	if v.Excess != "" {
		domain := v.Match.Domain
		v.Match.Reset()
		v.Match.Known, v.Match.Domain = true, domain
		return false
	}
	if v.Match.Block == nil && v.Match.Exempt == nil {
		v.Decisions = resize(v.Decisions, len(v.Match.Charges))
	}
	return len(v.Decisions) > 0
}

// identify resolves the evidence of a request into its subject, under the rules of its domain. A request that
// contradicts itself is refused for that.
func identify(ctx context.Context, set *descriptors.Set, v *Verdict) *identity.Refusal {
	req := v.asked
	domain := set.Domain(req.Domain)
	if req.Evidence == nil || req.Subject == nil || domain == nil {
		return nil
	}
	peer := req.Evidence.Peer
	client, refusal := identity.Client{Address: peer, AddressTrusted: peer.IsValid()}, (*identity.Refusal)(nil)
	if domain.Identity != nil {
		client, refusal = domain.Identity.ResolveWithin(ctx, req.Evidence)
	}
	req.Subject.Client, v.Client = client, client
	if refusal != nil {
		return refusal
	}
	return req.Subject.Check()
}

// tooMany reports whether more charges than one call of the store can have are to be made all or none.
func tooMany(charges []limit.Charge) bool {
	together := 0
	for i := range charges {
		if !charges[i].Each {
			together++
		}
	}
	return together > limit.MaxTogether
}

// setQuotas finds quotas that always have room: beside one of them no other can refuse the request, so their refusals
// count as shadow, though they are reported.
func (e *Engine) setQuotas(v *Verdict) {
	room := slices.ContainsFunc(v.Match.Terms, func(t descriptors.Term) bool { return t.Effect.QuotaToo })
	if e.cfg.Quota {
		room = v.quotaMode()
	}
	for i := range v.Match.Charges {
		if room && v.Match.Charges[i].Mode == limit.Quota {
			v.Match.Charges[i].Mode = limit.Shadow
		}
	}
}

// quotaMode puts all descriptors of trees into quota mode, and reports whether one always has room: no tree limits it,
// or only in shadow. One that a tree lets pass without limit is left out. A scoped rule that is unlimited is without
// effect.
func (v *Verdict) quotaMode() (room bool) {
	for i := range v.Match.Terms {
		t := &v.Match.Terms[i]
		if t.Descriptor >= 0 && t.Effect.Tree && !t.Effect.Shadow() {
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
