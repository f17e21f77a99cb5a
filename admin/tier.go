package admin

import (
	"fmt"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/rules"
)

const (
	maxTier   = 256 // bytes
	maxLimits = 16  // of one record
)

// TierRequest asks for a tier, or for limits of its own, of an identity. What is left out stays; an empty tier and an empty list go back
// to what the rule file has.
type TierRequest struct {
	Whom
	Tier   *string      `json:"tier,omitempty"`
	Limits *[]LimitView `json:"limits,omitempty"`
	Note   *string      `json:"note,omitempty"`
	DryRun bool         `json:"dry_run,omitempty"`
}

// tier serves POST /v1/tier.
func (a *API) tier(c *call) (any, *Problem) {
	var ask TierRequest
	id, wrong := a.readWhom(c, &ask, &ask.Whom)
	if wrong == nil {
		wrong = ask.check(id.Kind)
	}
	if wrong != nil {
		return nil, wrong
	}
	limits, wrong := limitsOf(ask.Limits)
	if wrong != nil {
		return nil, wrong
	}
	var warnings []string
	if d, _ := a.domain(id.Domain); ask.Tier != nil && *ask.Tier != "" && d != nil && !d.NamesTier(*ask.Tier) {
		warnings = append(warnings, fmt.Sprintf("no rule of the domain %q names the tier %q", id.Domain, *ask.Tier))
	}
	return a.change(c, "tier", id, ask.DryRun, warnings, func(r *records.Record) {
		if ask.Tier != nil {
			r.Tier = *ask.Tier
		}
		if ask.Limits != nil {
			r.Limits = limits
		}
		note(r, ask.Note)
	})
}

// check returns what is wrong with the request.
func (r *TierRequest) check(kind records.Kind) *Problem {
	switch {
	case kind == records.Network:
		return bad("an address has no tier and no limits of its own: name a user, a tenant or an api_key")
	case r.Tier == nil && r.Limits == nil && r.Note == nil:
		return bad("tier, limits and note are missing: give at least one of them")
	case r.Tier != nil && len(*r.Tier) > maxTier:
		return bad("the tier has more than %d bytes", maxTier)
	case r.Limits != nil && len(*r.Limits) > maxLimits:
		return bad("%d limits are more than %d", len(*r.Limits), maxLimits)
	}
	return texts("", r.Note)
}

// limitsOf reads limits.
func limitsOf(written *[]LimitView) ([]records.Limit, *Problem) {
	if written == nil {
		return nil, nil
	}
	var all []records.Limit
	names := map[string]bool{}
	for i, w := range *written {
		l, err := limitOf(w)
		if err == nil && w.Name != "" && names[w.Name] {
			err = fmt.Errorf("another one has the name %q", w.Name)
		}
		if err == nil && w.Unlimited && len(*written) > 1 {
			err = fmt.Errorf("unlimited stands beside other limits: keep one or the other")
		}
		if err != nil {
			return nil, bad("limit %d: %v", i+1, err)
		}
		names[w.Name] = true
		all = append(all, l)
	}
	return all, nil
}

// limitOf reads one limit. The default algorithm is token_bucket, and its burst is the count.
func limitOf(w LimitView) (records.Limit, error) {
	r := records.Limit{Name: w.Name, Unlimited: w.Unlimited, Count: w.Count, Burst: w.Burst, Algorithm: w.Algorithm}
	if len(w.Name) > maxTier || !plainName(w.Name) {
		return r, fmt.Errorf("the name must have at most %d bytes, and no quotes, backslashes and control characters", maxTier)
	}
	if w.Unlimited {
		if w != (LimitView{Name: w.Name, Unlimited: true}) {
			return r, fmt.Errorf("unlimited stands alone: remove count, per, burst and algorithm")
		}
		return r, nil
	}
	algorithm := limit.TokenBucket
	if w.Algorithm != "" {
		var known bool
		algorithm, known = limit.ParseAlgorithm(w.Algorithm)
		if !known {
			return r, fmt.Errorf("algorithm %q must be token_bucket, sliding_window, fixed_window or sliding_log", w.Algorithm)
		}
	}
	per, err := rules.ParseDuration(w.Per)
	if err != nil {
		return r, fmt.Errorf("per: %w", err)
	}
	r.Per, r.Algorithm = per, algorithm.String()
	if algorithm.HasBurst() && r.Burst == 0 {
		r.Burst = r.Count
	}
	if !algorithm.HasBurst() && r.Burst != 0 {
		return r, fmt.Errorf("burst belongs to token_bucket: %s has none", algorithm)
	}
	return r, limit.Limit{Algorithm: algorithm, Count: r.Count, Window: per, Burst: r.Burst}.Validate()
}
