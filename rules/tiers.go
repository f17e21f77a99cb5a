package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// tierProblems warns of tiers that clients of the file have and no rule names, and of rules about tiers that no client
// can have. Over the rate limit service Envoy may send any tier, and so may a token that has a claim for it.
func tierProblems(d *descriptors.Domain) (problems []descriptors.Problem) {
	warn := func(at descriptors.Pos, format string, args ...any) {
		problems = append(problems, descriptors.Problem{Pos: at, Warning: true, Text: fmt.Sprintf(format, args...)})
	}
	named, counted := tiersOfRules(d)
	had := tiersOfKeys(d)
	for _, a := range slices.Concat(d.Users, d.Tenants) {
		had[a.Tier] = true
		if advice := unnamed(&a, named, counted); advice != "" {
			warn(a.Pos, "%q has the tier %q, which no rule names%s", clip(a.Name), clip(a.Tier), advice)
		}
	}
	if !closedTiers(d, had) {
		return problems
	}
	for _, tier := range sorted(named) {
		if r := named[tier]; !had[tier] {
			warn(r.Pos, "rule %q is about the tier %q, which no user, tenant or API key of the file has; give it to "+
				"one, or remove it here, unless profiles give it", clip(r.Name), clip(tier))
		}
	}
	return problems
}

// unnamed is what to do about the tier of an account that no rule names; empty: the tier is of use, or may be. A tier
// is also of use where a rule counts by it.
func unnamed(a *descriptors.Account, named map[string]*descriptors.Rule, counted bool) string {
	if a.Tier == "" || len(named) == 0 || named[a.Tier] != nil {
		return ""
	}
	if near := nearest(a.Tier, sorted(named)); near != "" {
		return "; did you mean " + quote(near) + "?"
	}
	if len(a.Limits) > 0 || counted {
		return ""
	}
	return ", so the tier has no effect; rules name " + strings.Join(sorted(named), ", ")
}

// tiersOfRules are the tiers that rules name, each with the first rule, and whether a rule counts by tier.
func tiersOfRules(d *descriptors.Domain) (named map[string]*descriptors.Rule, counted bool) {
	named = map[string]*descriptors.Rule{}
	for i := range d.Rules {
		r := &d.Rules[i]
		counted = counted || r.Scope&descriptors.ScopeTier != 0
		for _, tier := range r.Match.Tiers {
			if named[tier] == nil {
				named[tier] = r
			}
		}
	}
	return named, counted
}

// tiersOfKeys are the tiers of API keys.
func tiersOfKeys(d *descriptors.Domain) map[string]bool {
	had := map[string]bool{}
	if d.Identity != nil {
		for i := range d.Identity.Keys.Keys {
			had[d.Identity.Keys.Keys[i].Tier] = true
		}
	}
	return had
}

// closedTiers reports whether all tiers of clients are in the file: the domain is one of ext_authz, no
// token has a claim for the tier, and the file gives tiers at all.
func closedTiers(d *descriptors.Domain, had map[string]bool) bool {
	delete(had, "")
	if len(had) == 0 || d.Identity == nil || len(d.Tree)+len(d.Attributes) > 0 {
		return false
	}
	return !slices.ContainsFunc(d.Identity.Issuers, func(i identity.Issuer) bool { return i.TierClaim != "" })
}
