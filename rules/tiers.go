package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// tierProblems warns of tiers that clients of the file have and no rule names, and of rules about tiers that no client
// can have. Over the rate limit service Envoy may send any tier, and so may a token that has a claim for it. keys are
// the API keys of the file that have a tier. A control that publishes rules gives tiers by profiles.
func tierProblems(d *descriptors.Domain, keys []descriptors.Account, published bool) (problems []descriptors.Problem) {
	warn := func(at descriptors.Pos, format string, args ...any) {
		problems = append(problems, descriptors.Problem{Pos: at, Warning: true, Text: fmt.Sprintf(format, args...)})
	}
	named, counted := tiersOfRules(d)
	for _, a := range slices.Concat(d.Users, d.Tenants, keys) {
		if advice := unnamed(&a, named, counted); advice != "" {
			warn(a.Pos, "%q has the tier %q, which no rule names%s", clip(a.Name), clip(a.Tier), advice)
		}
	}
	if d.Identity != nil && len(d.Tree)+len(d.Attributes) == 0 {
		idleTiers(d, keys, published, named, warn)
	}
	return problems
}

// idleTiers warns of rules about tiers in a domain for ext_authz alone, where all clients are known by its identity.
func idleTiers(d *descriptors.Domain, keys []descriptors.Account, published bool, named map[string]*descriptors.Rule,
	warn func(at descriptors.Pos, format string, args ...any)) {
	proofs := proofsOf(d.Identity)
	had := tiersOfFile(d, keys, proofs)
	switch {
	case len(proofs) == 0:
		for _, r := range aboutTiers(d) {
			warn(r.Pos, "rule %q can never apply over ext_authz: it is about tiers, and the order of identity "+
				"shows no "+
				"user, tenant or API key that could have one; add jwt, api_key or mtls to order, before ip",
				clip(r.Name))
		}
	case published && len(had) == 0, slices.Contains(proofs, identity.JWT) && claims(d.Identity, tierClaim):
	default:
		for _, tier := range slices.DeleteFunc(sorted(named), func(tier string) bool { return had[tier] }) {
			warn(named[tier].Pos, "rule %q is about the tier %q, which no user, tenant or API key of the file has; "+
				"give it "+
				"to one, or remove it here, unless profiles give it", clip(named[tier].Name), clip(tier))
		}
	}
}

// unnamed is what to do about the tier of an account that no rule names; empty: the tier is of use, or may be. A tier
// is also of use where a rule counts by it.
func unnamed(a *descriptors.Account, named map[string]*descriptors.Rule, counted bool) string {
	if a.Tier == "" || named[a.Tier] != nil {
		return ""
	}
	if near := nearest(a.Tier, sorted(named)); near != "" {
		return "; did you mean " + quote(near) + "?"
	}
	if len(a.Limits) > 0 || counted {
		return ""
	}
	if len(named) == 0 {
		return ", so the tier has no effect; no rule has `match: { tiers: [...] }`"
	}
	return ", so the tier has no effect; rules name " + strings.Join(sorted(named), ", ")
}

// tiersOfRules are the tiers that rules name, each with the first rule, and whether a rule counts by tier.
func tiersOfRules(d *descriptors.Domain) (named map[string]*descriptors.Rule, counted bool) {
	named = map[string]*descriptors.Rule{}
	for _, r := range aboutTiers(d) {
		counted = counted || r.Scope&descriptors.ScopeTier != 0
		for _, tier := range r.Match.Tiers {
			if named[tier] == nil {
				named[tier] = r
			}
		}
	}
	return named, counted
}

// aboutTiers are the rules that name tiers or count by them.
func aboutTiers(d *descriptors.Domain) (all []*descriptors.Rule) {
	for i := range d.Rules {
		if r := &d.Rules[i]; len(r.Match.Tiers) > 0 || r.Scope&descriptors.ScopeTier != 0 {
			all = append(all, r)
		}
	}
	return all
}

// proofsOf are the kinds of evidence that can show a user: those of the order before ip, which shows an address
// always, with the section that they need.
func proofsOf(cfg *identity.Config) (kinds []identity.EvidenceKind) {
	for _, kind := range cfg.Order {
		switch kind {
		case identity.IP:
			return kinds
		case identity.JWT:
			if len(cfg.Issuers) == 0 {
				continue
			}
		case identity.APIKey:
			if cfg.Keys.Header+cfg.Keys.Query == "" {
				continue
			}
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// tiersOfFile are the tiers that the file gives to those whom the evidence can show.
func tiersOfFile(d *descriptors.Domain, keys []descriptors.Account, proofs []identity.EvidenceKind) map[string]bool {
	all := d.Users
	byKey := slices.Contains(proofs, identity.APIKey)
	if byKey || slices.Contains(proofs, identity.JWT) && claims(d.Identity, tenantClaim) {
		all = slices.Concat(all, d.Tenants)
	}
	if byKey {
		all = slices.Concat(all, keys)
	}
	had := map[string]bool{}
	for i := range all {
		had[all[i].Tier] = true
	}
	delete(had, "")
	return had
}

func tierClaim(i identity.Issuer) bool   { return i.TierClaim != "" }
func tenantClaim(i identity.Issuer) bool { return i.TenantClaim != "" }

// claims reports whether an issuer of tokens has such a claim.
func claims(cfg *identity.Config, such func(identity.Issuer) bool) bool {
	return slices.ContainsFunc(cfg.Issuers, such)
}
