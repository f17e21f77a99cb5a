package descriptors

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// rules checks the scoped rules of a domain.
func (c *checker) rules(d *Domain) {
	names := map[string]Pos{}
	all := d.Rules
	if d.Defaults != nil {
		all = append(slices.Clip(all), *d.Defaults)
		c.defaults(d.Defaults)
	}
	for i := range all {
		r := &all[i]
		c.whole(r.Pos, func() {
			if r.Name == "" {
				c.fail(r.Pos, "a rule has no name: give it one, unique in the domain")
			}
			if before, known := names[r.Name]; known && r.Name != "" {
				c.fail(r.Pos, "duplicate rule name %q, which %s has already: rename one of them", r.Name,
					before.place())
			}
			names[r.Name] = r.Pos
			c.rule(r)
		})
		if r.PostPaid && d.onlyExtAuthz() && !c.incomplete[d.Name] {
			c.warn(r.Pos, "rule %q never refuses over ext_authz: post_paid needs the rate limit service, which asks "+
				"before and charges after a request. This "+
				"domain looks like one of ext_authz (it has identity and neither descriptors nor attributes): if it "+
				"is, remove post_paid", r.Name)
		}
	}
}

// defaults checks what the rule of requests that nothing else limits can be. Counted by endpoint it would limit none:
// a client has as many paths as it likes.
func (c *checker) defaults(r *Rule) {
	if r.Scope&ScopeEndpoint != 0 {
		c.fail(r.Pos, "defaults cannot count by endpoint, of which a client has as many as it likes: use scope: "+
			"client, ip, user, tenant, api_key, tier or global")
	}
}

// onlyExtAuthz reports whether a domain is written for ext_authz alone: it has identity, which is of use to that filter
// only, and nothing about descriptors.
func (d *Domain) onlyExtAuthz() bool {
	return d.Identity != nil && len(d.Tree)+len(d.Attributes) == 0
}

func (c *checker) rule(r *Rule) {
	c.name(r.Pos, "rule", r.Name)
	c.conditions(r.Pos, &r.Match)
	c.limits(r.Pos, r.Limits)
	c.response(r.Pos, r.Response)
	c.penalty(r)
	c.ruleLimits(r)
	c.clients(r)
	c.action(r)
	if hasControl(r.Reason) {
		c.fail(r.Pos, "the reason of rule %q has control bytes: remove them", r.Name)
	}
	if r.Cost < 0 || r.Cost > limit.MaxCost {
		c.fail(r.Pos, "cost %d of rule %q is not between 1 and %d", r.Cost, r.Name, int64(limit.MaxCost))
	}
}

// ruleLimits checks that a rule has what its action needs.
func (c *checker) ruleLimits(r *Rule) {
	bare := r.Action == Block || r.Action == Allow
	switch {
	case bare && len(r.Limits) > 0:
		c.fail(r.Pos, "rule %q is a block or allow and has a limit, which would never count: remove one of them",
			r.Name)
	case !bare && len(r.Limits) == 0:
		c.fail(r.Pos, "rule %q has no limit: add one, or make it action: block or action: allow", r.Name)
	case !bare && !r.HasScope:
		c.fail(r.Pos, "rule %q has a limit and no scope: add scope: global, tenant, user, ip, endpoint, client, "+
			"api_key or tier, or a list", r.Name)
	}
	for i := range r.Limits {
		if !r.Limits[i].Unlimited {
			c.ruleLimit(r, &r.Limits[i])
		}
	}
}

// clients checks that there can be a client that the rule is about.
func (c *checker) clients(r *Rule) {
	guests := r.Match.Authenticated != nil && !*r.Match.Authenticated
	switch {
	case guests && (r.Scope&ScopeUser != 0 || len(r.Match.Users) > 0):
		c.warn(r.Pos, "rule %q can never apply: it needs a user, and authenticated: false is about requests without "+
			"one: use scope: ip, say", r.Name)
	case r.Scope&ScopeClient != 0 && r.Scope&ScopeUser != 0:
		c.warn(r.Pos, "rule %q counts by client and by user, so requests without a user are not counted: remove one "+
			"of the two", r.Name)
	}
}

// ruleLimit checks that a limit suits its rule, and that a request can pass it.
func (c *checker) ruleLimit(r *Rule, l *Limit) {
	at := l.Pos.or(r.Pos)
	if r.Action == Throttle && !l.Algorithm.Lends() {
		c.fail(at, "rule %q throttles, which needs algorithm: token_bucket, not %v", r.Name, l.Algorithm)
	}
	if r.PostPaid && !l.Algorithm.Lends() {
		c.fail(at, "rule %q is post_paid, which needs algorithm: token_bucket, not %v", r.Name, l.Algorithm)
	}
	c.reserve(at, r.Reserve, r.PostPaid, l, fmt.Sprintf("rule %q", r.Name))
	switch {
	case l.Count == 0 || l.Capacity() == 0:
		c.warn(at, "no request can pass rule %q, whose limit is 0: if that is meant, write action: block", r.Name)
	case r.Cost > 0 && r.Cost > l.Capacity() && !r.PostPaid:
		c.warn(at, "no request can pass rule %q: its cost of %d is above the %d that the limit can hold: lower the "+
			"cost, or raise the burst",
			r.Name, r.Cost, l.Capacity())
	}
}

// reserve checks that a reservation belongs to post_paid and can be made.
func (c *checker) reserve(at Pos, reserve int64, postPaid bool, l *Limit, of string) {
	switch {
	case reserve == 0:
	case reserve < 0 || reserve > limit.MaxCost:
		c.fail(at, "reserve %d of %s is not between 1 and %d", reserve, of, int64(limit.MaxCost))
	case !postPaid:
		c.fail(at, "reserve of %s needs post_paid: true: other charges are taken when the request comes", of)
	case reserve > l.Capacity():
		c.fail(at, "reserve of %s is %d, above the %d that the limit can hold, so nothing would pass: lower it, or "+
			"raise burst", of, reserve, l.Capacity())
	}
}

// action checks the keys that belong to one action.
func (c *checker) action(r *Rule) {
	switch {
	case r.Action == Throttle && r.MaxDelay <= 0:
		c.fail(r.Pos, "rule %q throttles without max_delay: say how long a request may wait, as in max_delay: 500ms",
			r.Name)
	case r.Action == Throttle && r.MaxDelay > limit.LongestWait:
		c.warn(r.Pos, "max_delay %v of rule %q is longer than any answer is held: %v is meant", r.MaxDelay, r.Name,
			limit.LongestWait)
	case r.Action != Throttle && r.MaxDelay != 0:
		c.warn(r.Pos, "max_delay of rule %q has no effect: it belongs to action: throttle", r.Name)
	}
	if r.Action != Block && (r.Reason != "" || !r.Until.IsZero()) {
		c.warn(r.Pos, "reason and until of rule %q have no effect: they belong to action: block", r.Name)
	}
	if !r.Disabled {
		c.reach(r)
	}
}

// reach checks whom a rule can be about.
func (c *checker) reach(r *Rule) {
	switch {
	case r.isOver(c.now):
		c.warn(r.Pos, "rule %q can never apply: its until has passed", r.Name)
	case r.Action == Block && r.Match.none():
		c.fail(r.Pos, "rule %q has no match and would block every request: add match:, or disable it by enabled: false",
			r.Name)
	case r.Action == Allow && r.Match.none():
		c.warn(r.Pos, "rule %q has no match and so exempts every request: if that is not meant, add match:", r.Name)
	}
}

// none reports whether all conditions are empty.
func (m *Conditions) none() bool {
	return m.Authenticated == nil && len(m.Endpoints)+len(m.Methods)+len(m.Users)+len(m.Tenants)+len(m.Tiers)+
		len(m.CIDRs)+len(m.Entries) == 0
}

// isOver reports whether a block has ended.
func (r *Rule) isOver(now time.Time) bool {
	return r.Action == Block && !r.Until.IsZero() && !now.Before(r.Until)
}

func (c *checker) penalty(r *Rule) {
	if r.Penalty == nil {
		return
	}
	if r.Action == Block || r.Action == Allow {
		c.warn(r.Pos, "the penalty of rule %q has no effect: a block or allow has no limit to exceed", r.Name)
	}
	if r.HasScope && r.Scope&(ScopeTenant|ScopeUser|ScopeIP|ScopeAPIKey|ScopeClient) == 0 {
		c.warn(r.Pos, "the penalty of rule %q hits all clients together: give it a scope with tenant, user, ip, "+
			"client or api_key", r.Name)
	}
	c.penaltyNumbers(r.Pos, r.Penalty, fmt.Sprintf("rule %q", r.Name))
}

// penaltyNumbers checks the numbers of the penalty of a rule or a domain, which is what of calls it.
func (c *checker) penaltyNumbers(at Pos, p *Penalty, of string) {
	if p.Threshold < 1 || p.Threshold > limit.MaxThreshold {
		c.fail(at, "penalty threshold %d of %s is not between 1 and %d", p.Threshold, of, limit.MaxThreshold)
	}
	c.penaltySpan(at, "detection_window", p.DetectionWindow, of)
	if c.penaltySpan(at, "cool_down", p.CoolDown, of) {
		c.multipliers(at, p, of)
	}
}

// multipliers checks how long cool-downs become. One above the longest is not a mistake that would keep rules from
// working: the client is shut out all the same.
func (c *checker) multipliers(at Pos, p *Penalty, of string) {
	if n := len(p.Multipliers); n > limit.MaxMultipliers {
		c.fail(at, "the penalty of %s has %d multipliers, of which there are at most %d: the last one repeats", of, n,
			limit.MaxMultipliers)
	}
	most := 1
	for _, m := range p.Multipliers {
		most = max(most, m)
		if m < 1 {
			c.fail(at, "penalty multiplier %d of %s is below 1", m, of)
		}
	}
	if int64(most) > int64(limit.MaxCoolDown/p.CoolDown) {
		c.warn(at, "the penalty of %s would last longer than %dh, and ends then: a block lasts as long as it has to",
			of, limit.MaxCoolDown/time.Hour)
	}
}

func (c *checker) penaltySpan(at Pos, what string, span time.Duration, of string) (ok bool) {
	if span < time.Microsecond || span > limit.MaxWindow {
		c.fail(at, "penalty %s %v of %s is not between 1µs and 3650d", what, span, of)
		return false
	}
	return true
}

func (c *checker) conditions(at Pos, m *Conditions) {
	for _, p := range m.Endpoints {
		here := p.Pos.or(at)
		taken, err := parsePattern(p.Text)
		if err != nil {
			c.fail(here, "%v", err)
			continue
		}
		c.endpoint(here, p.Text, taken)
	}
	for _, network := range m.CIDRs {
		if !network.IsValid() {
			c.fail(at, "match: a cidr cannot be read: write an address and its bits, as in 10.0.0.0/8")
		}
	}
	for _, list := range [][]string{m.Methods, m.Users, m.Tenants, m.Tiers} {
		if slices.Contains(list, "") {
			c.warn(at, "match: an empty name can never apply, because an empty attribute is none: remove it")
		}
	}
	if _, found := m.Entries[""]; found {
		c.warn(at, "match: an entry with an empty key will hardly ever apply: name its key")
	}
}
