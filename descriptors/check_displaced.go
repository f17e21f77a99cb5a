package descriptors

import "github.com/spillway-mesh/spillway/limit"

// displaced warns of rules, and of endpoints of rules, that another rule always displaces.
func (c *checker) displaced(d *CompiledDomain) {
	var f facts
	lost := map[*Rule][]loss{}
	count := map[*Rule]int{} // candidates of a rule
	var order []*Rule
	for number, group := range d.index.groups {
		if number == d.costs {
			continue
		}
		for _, one := range group.all {
			if count[one.written] == 0 {
				order = append(order, one.written)
			}
			count[one.written]++
			d.index.asked(&f, one)
			if winner, why := d.winnerOver(&f, number, one); winner != nil {
				lost[one.written] = append(lost[one.written], loss{one, winner, why})
			}
		}
	}
	for _, r := range order {
		c.lost(d.Name, r, lost[r], count[r])
	}
}

// loss is a candidate that never wins, the one that wins instead, and what to do about it.
type loss struct {
	of, to *candidate
	why    string
}

// lost reports the losses of a rule: all of it, or some of its endpoints.
func (c *checker) lost(domain string, r *Rule, losses []loss, of int) {
	for _, l := range losses {
		by := l.to.written
		if len(losses) == of {
			c.warn(r.Pos, "rule %q can never apply: rule %q (%s) %s", r.Name, by.Name, by.place(), l.why)
			c.never(domain, r)
			return
		}
		c.warn(l.of.at, "endpoint %q of rule %q never counts: rule %q (%s) %s", l.of.pattern.text, r.Name, by.Name,
			by.place(), l.why)
		c.never(domain, r)
	}
}

// never turns the last warning into one about a rule of that domain.
func (c *checker) never(domain string, r *Rule) {
	last := &c.problems[len(c.problems)-1]
	last.Never, last.Domain = r.Name, domain
}

// winnerOver returns what always displaces a candidate of a group: a block, an allow, or a candidate before it; and
// what to do about it.
func (d *CompiledDomain) winnerOver(f *facts, group int, b *candidate) (*candidate, string) {
	settles := func(a *candidate) bool { return a.standsFor(b) }
	if group != d.blocks {
		if a := d.index.cover(f, d.blocks, b, settles); a != nil {
			return a, "blocks all that it matches: narrow that one, or remove this one"
		}
	}
	if group != d.blocks && group != d.allows {
		if a := d.index.cover(f, d.allows, b, settles); a != nil {
			return a, "exempts all that it matches: narrow that one, or remove this one"
		}
	}
	a := d.index.cover(f, group, b, func(a *candidate) bool { return a.rank < b.rank && a.standsFor(b) })
	switch {
	case a == nil:
		return nil, ""
	case comparePatterns(a.pattern, b.pattern) != 0:
		return a, "matches all that it matches and has more of its endpoint written out: narrow that one, or remove " +
			"this one"
	case a.rule.priority != b.rule.priority:
		return a, "matches all that it matches and has a lower priority number: give this one a lower number or one " +
			"more kind of condition, or remove it"
	}
	return a, "matches all that it matches and stands first: give this one a lower priority number or one more kind " +
		"of condition, or remove it"
}

// standsFor reports whether the candidate applies wherever the other one's scope is known, and for ever.
func (c *candidate) standsFor(other *candidate) bool {
	return c.written != other.written && c.until.IsZero() && other.needs&c.needs == c.needs
}

// hidden warns of rows of the cost table all of whose requests meet a row before them: the first row that matches
// counts.
func (c *checker) hidden(d *CompiledDomain) {
	var f facts
	first := map[Pos]Pos{} // of a row, the row that hides one of its endpoints
	shown := map[Pos]bool{}
	rows := d.index.groups[d.costs].all
	for _, row := range rows {
		d.index.asked(&f, row)
		if by := d.index.cover(&f, d.costs, row, func(a *candidate) bool {
			return a.rank < row.rank && a.at != row.at
		}); by != nil {
			first[row.at] = by.at
		} else {
			shown[row.at] = true
		}
	}
	for _, row := range rows {
		if by, hides := first[row.at]; hides && !shown[row.at] {
			shown[row.at] = true // one warning for all of its endpoints
			c.warn(row.at, "this row can never apply: the row at %s matches all that it matches and stands first: "+
				"put this one before it, or remove it", by.place())
		}
	}
}

// costly warns of rows of the cost table that make a request cost more than a rule can hold: rows all of whose requests
// meet the rule, and rules all of whose requests meet the row.
func (c *checker) costly(d *CompiledDomain) {
	var f facts
	always := func(*candidate) bool { return true }
	type pair struct {
		row  Pos
		rule *Rule
	}
	warned := map[pair]bool{}
	warn := func(row, rule *candidate) {
		if row == nil || rule == nil || warned[pair{row.at, rule.written}] {
			return
		}
		if l := rule.rule.tooSmall(row.cost); l != nil {
			warned[pair{row.at, rule.written}] = true
			c.warn(row.at, "a request that costs %d by this row can never pass rule %q (%s), whose limit holds %d: "+
				"lower the cost, or raise the limit's burst",
				row.cost, rule.written.Name, rule.written.place(), l.Capacity())
		}
	}
	for _, scope := range d.scopes {
		for _, row := range d.index.groups[d.costs].all {
			d.index.asked(&f, row)
			warn(row, d.index.cover(&f, scope.enforced, row, always))
		}
		for _, rule := range d.index.groups[scope.enforced].all {
			d.index.asked(&f, rule)
			warn(d.index.cover(&f, d.costs, rule, always), rule)
		}
	}
}

// tooSmall returns a limit of the rule that can never hold a cost of the table, or nil.
func (r *compiledRule) tooSmall(cost int64) *limit.Limit {
	if r.cost > 0 || r.postPaid {
		return nil
	}
	for i := range r.limits {
		l := &r.limits[i].effect.Limit
		if !r.limits[i].unlimited && l.Capacity() > 0 && l.Capacity() < cost {
			return l
		}
	}
	return nil
}
