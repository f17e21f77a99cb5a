package descriptors

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// origin is what an effect was compiled from: a rule or a node of a tree, with the limit; an account has the limit
// alone.
type origin struct {
	rule  *Rule
	node  *Node
	limit *Limit
}

// Dump writes all that the domains hold, one line each: the domain's own settings, then its limits, blocks, allows,
// accounts and costs, sorted. A limit's line begins in the form of the reference server's /rlconfig page. A rule's path
// is its metric: "rule", its name, and its limit where it has several.
func (s *Set) Dump(w io.Writer) {
	out := bufio.NewWriter(w)
	for _, name := range s.Domains() {
		d := s.domains[name]
		fmt.Fprintln(out, strings.TrimSuffix(name+": "+strings.TrimPrefix(d.written.settings(), ", "), ": "))
		for _, line := range d.lines() {
			fmt.Fprintln(out, name+"."+line)
		}
	}
	// An error means that the reader of the page has gone away.
	_ = out.Flush()
}

// settings are what a domain holds besides its limits.
func (d *Domain) settings() string {
	return string(appendFields(nil, d, "Name", "Costs", "Rules", "Users", "Tenants", "Keys", "Tree", "Defaults"))
}

// lines are those of the domain's limits, blocks, allows, accounts, costs and exempt nodes.
func (d *CompiledDomain) lines() []string {
	var lines []string
	for _, e := range d.effects {
		if e.Rule != RulePenalty { // it is among the settings
			lines = append(lines, e.line())
		}
	}
	for i := range d.written.Rules {
		if r := &d.written.Rules[i]; r.Disabled {
			lines = append(lines, d.compileRule(r).lines()...)
		}
	}
	for i := range d.written.Costs {
		lines = append(lines,
			fmt.Sprintf("cost.%d: %s", i+1, strings.TrimPrefix(string(appendFields(nil, &d.written.Costs[i])), ", ")))
	}
	lines = appendTiers(lines, accountUser, d.written.Users)
	lines = appendTiers(lines, accountTenant, d.written.Tenants)
	lines = appendExempt(lines, "", d.written.Tree)
	slices.Sort(lines)
	return lines
}

// lines are those of a rule that is not in use.
func (c *compiledRule) lines() []string {
	if c.verdict != nil {
		return []string{c.verdict.line()}
	}
	var lines []string
	for _, l := range c.limits {
		lines = append(lines, l.effect.line())
	}
	return lines
}

// appendTiers adds the accounts that have a tier.
func appendTiers(lines []string, kind string, accounts []Account) []string {
	for i := range accounts {
		if accounts[i].Tier != "" {
			lines = append(lines, fmt.Sprintf("%s %q: tier: %q", kind, accounts[i].Name, accounts[i].Tier))
		}
	}
	return lines
}

// appendExempt adds the nodes without a limit and without children, which exempt what they match.
func appendExempt(lines []string, above string, nodes []Node) []string {
	for i := range nodes {
		n := &nodes[i]
		if len(n.Limits)+len(n.Nodes) == 0 {
			lines = append(lines, above+n.joined()+": no limit"+string(appendFields(nil, n, "Key", "Value")))
		}
		lines = appendExempt(lines, above+n.joined()+".", n.Nodes)
	}
	return lines
}

func (e *Effect) line() string {
	text := strings.Join(e.Metric, ".") + ": "
	if e.Action != Block && e.Action != Allow {
		text += e.amount() + ", "
	}
	if e.Account != "" {
		text += fmt.Sprintf("%s: %q, ", e.Rule, e.Account)
	}
	return strings.TrimSuffix(text+strings.TrimPrefix(e.from.fields(), ", "), ", ")
}

// amount is a limit in the form of the reference server, and what ours have besides.
func (e *Effect) amount() string {
	modes := fmt.Sprintf("shadow_mode: %t, quota_mode: %t", e.Mode == limit.Shadow, e.Mode == limit.Quota || e.QuotaToo)
	if e.Limit.Algorithm == 0 {
		return "unlimited, " + modes
	}
	text := fmt.Sprintf("unit=%s requests_per_unit=%d, %s", e.Unit, e.Limit.Count, modes)
	if e.Multiplier > 1 {
		text += fmt.Sprintf(", unit_multiplier: %d", e.Multiplier)
	}
	if e.Limit.Algorithm != limit.FixedWindow {
		text += ", algorithm: " + e.Limit.Algorithm.String()
	}
	if e.Limit.Algorithm.HasBurst() {
		text += fmt.Sprintf(", burst: %d", e.Limit.Burst)
	}
	if e.Calendar != 0 {
		text += ", per: " + e.Calendar.String()
	} else if e.Limit.Window != e.Unit.Duration()*time.Duration(e.Multiplier) {
		text += fmt.Sprintf(", per: %v", e.Limit.Window)
	}
	return text
}

// fields are what was written besides the limit.
func (o origin) fields() string {
	var b []byte
	if o.limit != nil {
		b = appendFields(b, o.limit.Limit, "Algorithm", "Count", "Window", "Burst")
		b = appendFields(b, o.limit, "Limit", "Unlimited", "Unit", "Multiplier", "CountUnset", "CalendarUnit")
	}
	if o.node != nil {
		b = appendFields(b, o.node, "Key", "Value", "Limits", "Nodes", "Shadow", "Quota")
	}
	if o.rule == nil {
		return string(b)
	}
	if o.rule.HasScope {
		b = append(b, ", scope: "+o.rule.Scope.String()...)
	}
	b = append(b, fmt.Sprintf(", action: %v, priority: %d", o.rule.Action, o.rule.Priority)...)
	return string(appendFields(b, o.rule, "Name", "Scope", "HasScope", "Limits", "Action", "Priority"))
}

// At is where its rule or node begins, or the limit of a user, tenant or API key; the zero Pos: in no
// file.
func (e *Effect) At() Pos {
	switch from := e.from; {
	case from.rule != nil:
		return from.rule.Pos
	case from.node != nil:
		return from.node.Pos
	case from.limit != nil:
		return from.limit.Pos
	}
	return Pos{}
}

// Match is what a rule matches, as its file writes it; empty: all requests that its scope is about.
func (e *Effect) Match() string {
	if e.from.rule == nil {
		return ""
	}
	return strings.TrimPrefix(string(appendFields(nil, e.from.rule.Match)), ", ")
}

// PostPaid reports whether the limit is charged after the response.
func (e *Effect) PostPaid() bool {
	return e.from.rule != nil && e.from.rule.PostPaid || e.from.node != nil && e.from.node.PostPaid
}
