package descriptors

import (
	"context"
	"fmt"
	"slices"

	"github.com/spillway-mesh/spillway/identity"
)

// Explanation is how a request came to its match: what is known about it, and what was compared.
type Explanation struct {
	Attributes []Attribute
	Readings   []string // of the path, the usual one first; none without a path
	Factor     int64    // what one hit takes from a rule without a cost of its own
	Considered []Considered
}

// Attribute is what is known about a request.
type Attribute struct {
	Name, Value string
	Descriptor  int // that supplied it; -1: none, it comes from the evidence or from the rules
}

// Considered is one rule, node of a tree, row of the cost table, or own limits of an identity, whose conditions the
// request meets.
type Considered struct {
	What       string // rule, node, cost, own or profile
	Name       string
	At         Pos    // where it was written; zero: in no file
	Scope      string // of a rule
	Action     string // of a rule
	Pattern    string // the endpoint pattern by which it matches
	Reading    string // of the path under which it matches, where there are several
	Descriptor int    // of a node; -1: none
	Won        bool
	BeatenBy   string // the one that won in its place
	BeatenAt   Pos
	Because    string // the comparison that decided: what the winner has
}

// Explain describes how a request came to its match, which Match has just filled. It uses the memory of m and leaves
// what m found. What it compares is what Match compares, so the two agree.
func (d *CompiledDomain) Explain(req *Request, m *Match) *Explanation {
	x := &Explanation{Factor: 1}
	if req.Subject == nil {
		d.explainTrees(req, x)
	}
	if !d.meetsRules(req) {
		return x
	}
	s := &m.scratch
	x.addAttributes(&s.attrs)
	if s.readings.tooLong {
		return x
	}
	d.explainProfiles(req, x)
	usual := s.attrs.text[attrEndpoint]
	for n := range max(len(s.readings.choices), 1) {
		reading := ""
		if s.readings.several() {
			reading = s.readings.at(n)
			s.attrs.text[attrEndpoint] = reading
		}
		if usual != "" {
			x.Readings = append(x.Readings, s.attrs.text[attrEndpoint])
		}
		d.chooseOnce(req, s)
		d.explainGroups(req, s, x, reading)
	}
	s.attrs.text[attrEndpoint] = usual
	d.choose(req, m)
	x.Factor = d.factor(req, s)
	if m.Block != nil || m.Exempt != nil {
		x.settle(m)
	}
	x.settleDefault(d.written.Defaults, m)
	return x
}

// settleDefault notes that the rule for requests that nothing else limits did not apply.
func (x *Explanation) settleDefault(r *Rule, m *Match) {
	is := func(t Term) bool { return r != nil && t.Effect.from.rule == r }
	if r == nil || slices.ContainsFunc(m.Terms, is) || slices.ContainsFunc(m.Unlimited, is) {
		return
	}
	for i := range x.Considered {
		if c := &x.Considered[i]; c.Name == r.Name && c.Won {
			c.Won, c.BeatenBy, c.Because = false, "another limit", "counts the request already"
		}
	}
}

// addAttributes adds what is known.
func (x *Explanation) addAttributes(a *attributes) {
	for attr, name := range attributeWords {
		if a.text[attr] != "" {
			x.Attributes = append(x.Attributes, Attribute{name, a.text[attr], a.from[attr]})
		}
	}
}

// explainGroups adds the candidates that hold, with the one of each group that was chosen.
func (d *CompiledDomain) explainGroups(req *Request, s *scratch, x *Explanation, reading string) {
	have := s.attrs.scope()
	for number := range d.index.groups {
		best := s.best[number]
		for _, c := range d.index.groups[number].all {
			if !d.index.holds(c, &s.facts, have) {
				continue
			}
			one := c.considered(number == d.costs)
			one.Reading = reading
			one.Won = c == best
			if !one.Won && best != nil {
				one.BeatenBy, one.BeatenAt, one.Because = best.title(), best.at, best.beats(c)
			}
			x.Considered = append(x.Considered, one)
		}
	}
	d.explainOwn(req, s, x, reading)
}

// considered is the candidate in an explanation.
func (c *candidate) considered(cost bool) Considered {
	one := Considered{What: "rule", Name: c.title(), At: c.at, Descriptor: -1}
	if cost {
		one.What = "cost"
	} else {
		one.Action = c.written.Action.String()
		if c.written.HasScope {
			one.Scope = c.written.Scope.String()
		}
	}
	if c.pattern != nil {
		one.Pattern = c.pattern.text
	}
	return one
}

// title is the name of the rule, or what a row of the cost table is called.
func (c *candidate) title() string {
	if c.written == nil {
		return "costs"
	}
	return c.written.Name
}

// beats is why the candidate was chosen before another one of its group.
func (c *candidate) beats(other *candidate) string {
	if c.rule != nil && other.rule != nil {
		for _, by := range comparisons {
			if by.of(c, other) < 0 {
				return by.what
			}
		}
	}
	return "stands first in the file"
}

// explainOwn adds the limits that an identity has of its own, and lets them beat the rules in whose place they stand.
func (d *CompiledDomain) explainOwn(req *Request, s *scratch, x *Explanation, reading string) {
	have := s.attrs.scope()
	for _, g := range d.scopes {
		own := d.own(g.scope, req, s)
		if own == nil || have&g.scope != g.scope {
			continue
		}
		effect := own.limits[0].effect
		one := Considered{What: "own", Name: effect.Rule + " " + effect.Account, Scope: g.scope.String(),
			Reading: reading, Descriptor: -1}
		if effect.from.limit != nil {
			one.At = effect.from.limit.Pos
		}
		winner, _ := d.winner(g, req, s)
		one.Won = winner == own
		if best := s.best[g.enforced]; best != nil {
			if one.Won {
				x.displace(best, reading, &one)
			} else {
				one.BeatenBy, one.BeatenAt, one.Because = best.title(), best.at, "names more than a tier"
			}
		}
		x.Considered = append(x.Considered, one)
	}
}

// displace takes the win from a rule in whose place the limits of an identity stand.
func (x *Explanation) displace(best *candidate, reading string, by *Considered) {
	at := slices.IndexFunc(x.Considered, func(c Considered) bool {
		return c.Won && c.What == "rule" && c.Name == best.title() && c.At == best.at && c.Reading == reading
	})
	if at >= 0 {
		x.Considered[at].Won = false
		x.Considered[at].BeatenBy, x.Considered[at].BeatenAt, x.Considered[at].Because = by.Name, by.At,
			"is the identity's own, and the rule names no more than a tier"
	}
}

// settle takes the win from all that a block or an allow leaves without effect.
func (x *Explanation) settle(m *Match) {
	effect, because := m.Exempt, "exempts the request"
	if m.Block != nil {
		effect, because = m.Block, "blocks the request"
	}
	for i := range x.Considered {
		c := &x.Considered[i]
		if c.Name == effect.Rule || c.What == "profile" || !c.Won {
			continue
		}
		c.Won, c.BeatenBy, c.Because = false, effect.Rule, because
		if effect.from.rule != nil {
			c.BeatenAt = effect.from.rule.Pos
		}
	}
}

// explainProfiles adds the profiles of those who ask.
func (d *CompiledDomain) explainProfiles(req *Request, x *Explanation) {
	if req.Profiles == nil {
		return
	}
	for _, r := range [...]*Profile{req.Profiles.Address, req.Profiles.Tenant, req.Profiles.User, req.Profiles.APIKey} {
		if r == nil {
			continue
		}
		one := Considered{What: "profile", Name: RuleProfile, Scope: r.Kind.String(), Descriptor: -1, Pattern: r.Name}
		if r.Blocked && r.holds(d.index.now()) {
			one.Action = Block.String()
			one.Won = d.profileBlock(req) == r.in(d).block
		} else {
			one.Won = r.isMore()
		}
		x.Considered = append(x.Considered, one)
	}
}

// isMore reports whether the profile holds something besides a block.
func (r *Profile) isMore() bool { return r.Tier != "" || len(r.Limits) > 0 || r.Lifted }

// KeyFault is why the API key of a request is not accepted, or nothing.
func (d *CompiledDomain) KeyFault(ctx context.Context, of *identity.Evidence) string {
	if d.Identity == nil {
		return ""
	}
	if of.Verified != nil {
		if _, known := d.Identity.KeyClient(of.Verified.Key); of.Verified.Key != "" && !known {
			return fmt.Sprintf("the API key %q is not known to the rule file", of.Verified.Key)
		}
		return ""
	}
	fault := d.Identity.KeyFault(ctx, of)
	if fault != "" {
		fault = "the API key in " + d.Identity.KeyPlace() + " " + fault
	}
	return fault
}
