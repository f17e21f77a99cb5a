package descriptors

import (
	"cmp"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// Match fills m with what the request comes to: trees and overrides in the order of the descriptors, then rules by
// scope. Global rules hold for a request without descriptors as well. For one with a Subject all rules hold and no tree
// does; their terms report on descriptor -1: on none of them.
func (s *Set) Match(req *Request, m *Match) {
	m.Reset()
	d := s.domains[req.Domain]
	if d == nil {
		return
	}
	m.Known, m.Domain = true, d
	trees := req.Subject == nil
	if trees {
		d.findLeaves(req, m)
	}
	scoped := d.meetsRules(req)
	if scoped {
		d.choose(req, m)
		if d.settles(req, m) {
			return
		}
	}
	if trees {
		d.chargeTrees(req, m)
	}
	taken := trees && len(req.Descriptors) > 0 && m.scratch.attrs.first < 0 // by post-paid leaves
	if scoped && !taken {
		d.chargeRules(req, m)
	}
}

// meetsRules reports whether there is more to match than trees: rules, or profiles of who asks.
func (d *CompiledDomain) meetsRules(req *Request) bool { return d.scoped || req.Profiles != nil }

// settles reports whether a block or an allow applies, or the path is too long to be read: then nothing is charged.
func (d *CompiledDomain) settles(req *Request, m *Match) bool {
	m.Block = d.profileBlock(req)
	if m.Block != nil {
		return true
	}
	if m.scratch.readings.tooLong {
		m.LongPath = true
		return true
	}
	best := m.scratch.best
	if c := best[d.blocks]; c != nil {
		m.Block = c.rule.verdict
		return true
	}
	if c := best[d.allows]; c != nil {
		m.Exempt = c.rule.verdict
		return true
	}
	return false
}

// choose gathers what is known about the request and chooses a candidate of each group.
func (d *CompiledDomain) choose(req *Request, m *Match) {
	s := &m.scratch
	if req.Subject == nil {
		s.attrs.gather(req, d.attributes)
	} else {
		s.attrs.setSubject(req.Subject)
	}
	s.key = s.attrs.normalize(d.ipv6Prefix, s.key, &s.readings)
	if s.readings.tooLong {
		return
	}
	d.setTier(req, &s.attrs)
	s.attrs.setClient()
	if cap(s.best) < len(d.index.groups) {
		s.best = make([]*candidate, len(d.index.groups))
	}
	s.best = s.best[:len(d.index.groups)]
	if s.readings.several() {
		d.chooseByReadings(req, s)
		return
	}
	d.chooseOnce(req, s)
}

// chooseOnce chooses by the attributes as they are.
func (d *CompiledDomain) chooseOnce(req *Request, s *scratch) {
	d.index.gather(&s.facts, req, &s.attrs)
	s.facts.lifted = d.lifted(req)
	s.looked = d.index.choose(&s.facts, s.attrs.scope(), s.best)
}

// setTier takes the tier from the users table, else from the request, else from the tenants table. A profile of the
// user, the key or the tenant replaces the tier of the table, or of the key.
func (d *CompiledDomain) setTier(req *Request, a *attributes) {
	if req.Profiles != nil && d.tierOfProfiles(req.Profiles, a) {
		return
	}
	if tier := d.users[a.text[attrUser]].tier; tier != "" {
		a.text[attrTier], a.from[attrTier] = tier, a.from[attrUser]
		return
	}
	if !a.has(attrTier) {
		a.text[attrTier], a.from[attrTier] = d.tenants[a.text[attrTenant]].tier, a.from[attrTenant]
	}
}

// tierOfProfiles takes the tier from the profiles, and reports whether it did.
func (d *CompiledDomain) tierOfProfiles(r *Profiles, a *attributes) bool {
	set := func(tier string, from attribute) bool {
		if tier != "" {
			a.text[attrTier], a.from[attrTier] = tier, a.from[from]
		}
		return tier != ""
	}
	if set(profileTier(r.User), attrUser) {
		return true
	}
	if d.users[a.text[attrUser]].tier != "" {
		return false
	}
	return set(profileTier(r.APIKey), attrAPIKey) || !a.has(attrTier) && set(profileTier(r.Tenant), attrTenant)
}

// chargeRules adds what the rules charge, scope by scope.
func (d *CompiledDomain) chargeRules(req *Request, m *Match) {
	s := &m.scratch
	charges, unlimited := len(m.Charges), len(m.Unlimited)
	factor := d.factor(req, s)
	have := s.attrs.scope()
	for i, g := range d.scopes {
		if have&g.scope != g.scope {
			continue
		}
		if s.readings.several() {
			d.chargeHeld(req, m, i, factor)
			continue
		}
		if r, p := d.winner(g, req, s); r != nil {
			d.chargeRule(req, m, r, p, factor)
		}
		if c := s.best[g.logOnly]; c != nil {
			d.chargeRule(req, m, c.rule, c.pattern, factor)
		}
	}
	if d.fallback.holds(have) && m.unlimited() {
		d.chargeRule(req, m, d.fallback, nil, factor)
	}
	if d.gate != nil && m.refusable(charges, unlimited) {
		d.chargeGate(req, m)
	}
}

// holds reports whether there is such a rule and the request has what it counts by.
func (r *compiledRule) holds(have Scope) bool { return r != nil && have&r.scope == r.scope }

// unlimited reports whether nothing limits the request so far: what is only logged limits none.
func (m *Match) unlimited() bool {
	for i := range m.Charges {
		if m.Charges[i].Mode != limit.Shadow {
			return false
		}
	}
	return len(m.Unlimited) == 0
}

// factor is what one hit takes from a rule without a cost of its own.
func (d *CompiledDomain) factor(req *Request, s *scratch) int64 {
	if cost, given := d.headerCost(req); given {
		return cost
	}
	if row := s.best[d.costs]; row != nil {
		return row.cost
	}
	return 1
}

// winner returns the rule that counts in a scope, with the endpoint pattern by which it matched. The limits that a
// user, a tenant or a key has of its own replaces rules that name no more than a tier.
func (d *CompiledDomain) winner(g scopeGroups, req *Request, s *scratch) (*compiledRule, *pattern) {
	c := s.best[g.enforced]
	if c != nil && c.rule.specific {
		return c.rule, c.pattern
	}
	own := d.own(g.scope, req, s)
	switch {
	case own != nil:
		return own, nil
	case c != nil:
		return c.rule, c.pattern
	}
	return nil, nil
}

// own returns the limits that the client has of its own in a scope, or nil. Those of its API key go before its user's.
func (d *CompiledDomain) own(scope Scope, req *Request, s *scratch) *compiledRule {
	if req.Profiles != nil {
		return d.ownByProfiles(scope, req, s)
	}
	switch scope {
	case ScopeTenant:
		return d.tenants[s.attrs.text[attrTenant]].own
	case ScopeUser:
		if own := d.ownKey(req); own != nil {
			return own
		}
		return d.users[s.attrs.text[attrUser]].own
	}
	return nil
}

// ownKey returns the limits that the rule file has for the API key of a request, or nil.
func (d *CompiledDomain) ownKey(req *Request) *compiledRule {
	if req.Subject == nil {
		return nil
	}
	return d.clientKeys[req.Subject.Client.Key].own
}

// ownByProfiles is own for a request with profiles: a profile replaces what the rule file holds for the same identity.
func (d *CompiledDomain) ownByProfiles(scope Scope, req *Request, s *scratch) *compiledRule {
	switch scope {
	case ScopeTenant:
		return cmp.Or(d.profileOwn(req.Profiles.Tenant), d.tenants[s.attrs.text[attrTenant]].own)
	case ScopeUser:
		return cmp.Or(d.profileOwn(req.Profiles.APIKey), d.ownKey(req), d.profileOwn(req.Profiles.User),
			d.users[s.attrs.text[attrUser]].own)
	}
	return nil
}

func (d *CompiledDomain) chargeRule(req *Request, m *Match, r *compiledRule, p *pattern, factor int64) {
	if req.Part == Over && !r.postPaid {
		return
	}
	s := &m.scratch
	factor = cmp.Or(r.cost, factor)
	i := s.attrs.reports(r.scope)
	charge := limit.Charge{}
	charge.Op, charge.Cost = req.spends(i, factor, r.postPaid)
	charge.Op, charge.Cost = reserving(r.reserve, charge.Op, charge.Cost)
	d.appendRuleHead(s, r, p)
	headed := len(s.key)
	if r.penalizes(charge.Op) && r.scope&^req.trusted() == 0 {
		s.key = append(s.key, r.penaltyTail...)
		charge.Penalty, charge.PenaltyKey = r.penalty, string(s.key)
	}
	if charge.Op == limit.Spend || charge.Op == limit.Peek && !r.postPaid {
		charge.MaxWait = r.maxWait
	}
	for j := range r.limits {
		l := &r.limits[j]
		term := Term{Effect: l.effect, Descriptor: i, Metric: l.effect.Metric}
		if l.unlimited {
			if !l.effect.Shadow() {
				m.Unlimited = append(m.Unlimited, term)
			}
			continue
		}
		s.key = append(s.key[:headed], l.tail...)
		charge.Key, charge.Limit, charge.Mode = string(s.key), l.calendar.limit(l.effect), l.effect.Mode
		m.addCharge(term, charge)
	}
}

// appendRuleHead puts the head of a rule's keys into s.key: the domain and the identity.
func (d *CompiledDomain) appendRuleHead(s *scratch, r *compiledRule, p *pattern) {
	s.values = s.values[:0]
	for _, named := range scopeNames {
		if r.scope&named.scope == 0 {
			continue
		}
		text := s.attrs.text[named.attr]
		switch {
		case named.scope == ScopeEndpoint && r.endpoint && p != nil:
			text = p.text
		case named.scope == ScopeUser && r.clientKey != "":
			text = r.clientKey
		}
		s.values = append(s.values, keys.Value{Text: text})
	}
	s.key = append(s.key[:0], d.head...)
	s.key = d.keys.AppendValues(s.key, s.values)
	s.key = append(s.key, d.seal...)
	if r.scope&ScopeClient != 0 && s.attrs.guest {
		s.key = append(s.key, "~ip"...)
	}
}
