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
	for _, list := range [][]descriptors.Account{d.Users, d.Tenants} {
		for i := range list {
			a := &list[i]
			had[a.Tier] = true
			if a.Tier == "" || len(named) == 0 || named[a.Tier] != nil {
				continue
			}
			near := nearest(a.Tier, sorted(named))
			switch {
			case near != "":
				warn(a.Pos, "%q has the tier %q, which no rule names; did you mean %q?", clip(a.Name), clip(a.Tier), near)
			case len(a.Limits) == 0 && !counted:
				warn(a.Pos, "%q has the tier %q, which no rule names, so the tier has no effect; rules name %s",
					clip(a.Name), clip(a.Tier), strings.Join(sorted(named), ", "))
			}
		}
	}
	if !closedTiers(d, had) {
		return problems
	}
	for _, tier := range sorted(named) {
		if !had[tier] {
			warn(named[tier].Pos, "rule %q is about the tier %q, which no user, tenant or API key of the file has; give it "+
				"to one, or remove it here, unless records give it", clip(named[tier].Name), clip(tier))
		}
	}
	return problems
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

// closedTiers reports whether clients have no other tiers than those of the file: the domain is one of ext_authz, no
// token has a claim for the tier, and the file gives tiers at all.
func closedTiers(d *descriptors.Domain, had map[string]bool) bool {
	delete(had, "")
	if len(had) == 0 || d.Identity == nil || len(d.Tree)+len(d.Attributes) > 0 {
		return false
	}
	return !slices.ContainsFunc(d.Identity.Issuers, func(i identity.Issuer) bool { return i.TierClaim != "" })
}
