package descriptors

import (
	"cmp"
	"slices"
)

// whoAsks are the conditions about who asks, in the order of holders.who.
var whoAsks = [...]dimension{dimUser, dimTenant, dimTier}

// addGroup adds the counters of the rules of a group, of which one counts a request. The holder's own limits take the
// place of those that name no more than a tier.
func (h *holders) addGroup(number int, own *compiledRule) {
	winner := ""
	for _, c := range h.domain.index.groups[number].all {
		idle, sure := h.meets(c)
		switch {
		case idle != "":
		case winner != "":
			idle = winner + " takes its place"
		case own != nil && !c.rule.specific:
			idle = "its own limit takes its place"
		case sure:
			winner = c.written.Name
			if own != nil {
				h.beaten[own] = winner + " takes its place"
			}
		}
		h.idle = idle
		h.addRule(c.rule, c.pattern)
	}
}

// meets returns why no request of the holder meets a rule, empty where one may, and whether all do.
func (h *holders) meets(c *candidate) (idle string, sure bool) {
	met := 0
	for i, dim := range whoAsks {
		name := h.who[i]
		id, known := h.domain.index.names[dim][name]
		switch {
		case len(c.asks[dim]) == 0, name == "" && dim != dimTier:
		case name == "":
			return "it is for a tier, and none is given or in its profile", false
		case !known || !slices.Contains(c.asks[dim], id):
			return "it is for others", false
		default:
			met++
		}
	}
	return "", met == c.asked() && c.needs&^h.have == 0
}

// asked counts the conditions of a candidate by what they are about.
func (c *candidate) asked() (n int) {
	if c.pattern != nil || !c.until.IsZero() {
		n++
	}
	for _, terms := range c.asks {
		if len(terms) > 0 {
			n++
		}
	}
	return n
}

// ownOf returns the limits of the holder's own that take the place of the rules of a group, or nil.
func (h *holders) ownOf(number int, of Holder, known *Profiles) *compiledRule {
	d := h.domain
	i := slices.IndexFunc(d.scopes, func(g scopeGroups) bool { return g.enforced == number })
	switch {
	case i < 0:
	case d.scopes[i].scope == ScopeTenant:
		return cmp.Or(d.profileOwn(known.Tenant), d.tenants[of.Tenant].own)
	case d.scopes[i].scope == ScopeUser:
		return cmp.Or(d.profileOwn(known.APIKey), d.clientKeys[of.APIKey].own, d.profileOwn(known.User),
			d.users[of.User].own)
	}
	return nil
}
