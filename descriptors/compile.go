package descriptors

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// Options are what Compile needs to know besides the rules.
type Options struct {
	KeyPrefix string           // put in front of every key
	KeySecret []byte           // with it, identities in keys are HMACed
	Now       func() time.Time // time.Now unless given; decides whether a block's Until has passed
	// Identity makes the resolver of a domain from its configuration, the zero one where it has none. It is called only
	// for sets that come out of Compile; nil makes no resolvers.
	Identity func(domain string, cfg *identity.Config) *identity.Resolver

	Broken     map[Pos]bool    // rules and rows of the cost table that were not read whole: they are checked alone
	Incomplete map[string]bool // domains of which more was not read: what depends on all of a domain is not warned of
}

// Set is all domains in their compiled form. It is never changed, so any number of goroutines may use it. The zero
// value knows no domain.
type Set struct{ domains map[string]*CompiledDomain }

// CompiledDomain is one domain in its compiled form. Its exported fields are for doors and pages.
type CompiledDomain struct {
	Name         string
	Headers      HeaderStyle
	ResetUnix    bool
	ChargeDenied bool
	CostHeader   string             // in lower case; empty: none
	Identity     *identity.Resolver // who asks, for ext_authz; nil without Options.Identity

	naming
	accounts
	groups
	tree       node
	attributes map[string]attribute
	ipv6Prefix int
	onFailure  Failure
	zone       *time.Location // of calendars
	calendars  [CalendarMonth]*calendar
	gate       *gate         // nil: a domain without a penalty
	fallback   *compiledRule // for requests that nothing else limits; nil: none
	effects    []*Effect
	overrides  overrides
	written    *Domain // what it was compiled from, for Dump
}

// naming is what the names of a domain's counters are made of.
type naming struct {
	serial uint64 // differs from those of all others in this process
	head   string // of its keys
	seal   string // what closes the hash tag after an identity: nothing where the domain alone is the tag
	keys   keys.Writer
}

// accounts are the users, tenants and API keys of the tables.
type accounts struct {
	users, tenants map[string]account
	clientKeys     map[string]account // by id
}

// groups are the rules that an index finds, in groups of it.
type groups struct {
	index                 index
	scopes                []scopeGroups
	blocks, allows, costs int
	defaults              int
	scoped                bool // the domain has anything but trees
}

var serials atomic.Uint64

// account is a user, a tenant or an API key of the tables.
type account struct {
	tier string
	own  *compiledRule // nil: none
}

// scopeGroups are the rules of one scope.
type scopeGroups struct {
	scope    Scope
	enforced int // groups of the index
	logOnly  int
}

// Compile checks the domains and compiles them. It reports every problem at once; the Set is nil when one of them is
// not a warning.
func Compile(domains []Domain, opt Options) (*Set, []Problem) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	c := checker{now: opt.Now(), broken: map[Pos]bool{}, incomplete: opt.Incomplete}
	maps.Copy(c.broken, opt.Broken)
	c.domains(domains)
	failed := c.errors > 0 || len(c.broken) > 0
	set := &Set{domains: make(map[string]*CompiledDomain, len(domains))}
	writer := keys.NewWriter(opt.KeySecret)
	for i := range domains {
		d := &domains[i]
		if failed {
			d, opt.Identity = c.sound(d), nil
		}
		compiled := compileDomain(d, opt, writer)
		set.domains[d.Name] = compiled
		c.displaced(compiled)
		c.hidden(compiled)
		if len(d.Costs) == len(domains[i].Costs) { // the first row that matches counts
			c.costly(compiled)
		}
	}
	if failed {
		return nil, c.problems
	}
	return set, c.problems
}

// sound is the rules and costs of a domain without those that have an error, so that the others are compared.
func (c *checker) sound(d *Domain) *Domain {
	all := &Domain{Name: d.Name}
	for _, r := range d.Rules {
		if !c.broken[r.Pos] {
			all.Rules = append(all.Rules, r)
		}
	}
	for _, row := range d.Costs {
		if !c.broken[row.Pos] {
			all.Costs = append(all.Costs, row)
		}
	}
	return all
}

func compileDomain(d *Domain, opt Options, writer keys.Writer) *CompiledDomain {
	c := &CompiledDomain{
		Name: d.Name, Headers: d.Headers, ResetUnix: d.ResetUnix, ChargeDenied: d.ChargeDenied,
		CostHeader: strings.ToLower(d.CostHeader),
		naming:     naming{serial: serials.Add(1), keys: writer},
		groups:     groups{scoped: d.Defaults != nil || len(d.Rules)+len(d.Users)+len(d.Tenants)+len(d.Keys) > 0},
		ipv6Prefix: d.IPv6Prefix, onFailure: d.OnFailure, written: d,
		attributes: maps.Clone(defaultAttributes),
	}
	c.head, c.seal = keys.Head(opt.KeyPrefix, d.Name, d.CoLocate)
	if c.ipv6Prefix == 0 {
		c.ipv6Prefix = 64
	}
	for key, name := range d.Attributes {
		c.attributes[key] = attributeNames[name]
	}
	c.index.now = opt.Now
	c.zone = time.UTC
	if d.Timezone != nil {
		c.zone = d.Timezone
	}
	for i := range c.calendars {
		c.calendars[i] = &calendar{unit: CalendarUnit(i + 1), zone: c.zone, now: c.index.now}
	}
	c.overrides.onFailure = c.onFailure
	c.users = c.addAccounts(d.Users, ScopeUser, accountUser)
	c.tenants = c.addAccounts(d.Tenants, ScopeTenant, accountTenant)
	c.clientKeys = c.addAccounts(d.Keys, ScopeUser, accountKey)
	c.addRules(d)
	c.addDefaults(d.Defaults)
	c.index.build()
	c.addGate(d.Penalty)
	c.addNodes(&c.tree, d.Tree)
	c.addResolver(d, opt)
	for _, e := range c.effects {
		e.class = classOf(d.Name, e)
	}
	c.overrides.domain = d.Name
	return c
}

func (c *CompiledDomain) addResolver(d *Domain, opt Options) {
	if opt.Identity == nil {
		return
	}
	cfg := d.Identity
	if cfg == nil {
		cfg = &identity.Config{}
	}
	c.Identity = opt.Identity(d.Name, cfg)
}

func (c *CompiledDomain) addAccounts(accounts []Account, scope Scope, kind string) map[string]account {
	table := make(map[string]account, len(accounts))
	for i := range accounts {
		own := c.compileAccount(&accounts[i], scope, kind)
		table[accounts[i].Name] = account{accounts[i].Tier, own}
		c.addEffects(own)
	}
	return table
}

func (c *CompiledDomain) addEffects(r *compiledRule) {
	if r == nil {
		return
	}
	if r.verdict != nil {
		c.effects = append(c.effects, r.verdict)
	}
	for _, l := range r.limits {
		c.effects = append(c.effects, l.effect)
	}
}

// allScopes has every attribute that a rule can count by.
const allScopes = ScopeTenant | ScopeUser | ScopeIP | ScopeEndpoint | ScopeAPIKey | ScopeTier | ScopeClient

// scopeCount is one more than the largest Scope.
const scopeCount = int(allScopes) + 1

// addRules compiles rules and costs into the index.
func (c *CompiledDomain) addRules(d *Domain) {
	var blocks, allows, costs []*candidate
	var enforced, logOnly [scopeCount][]*candidate
	for i := range d.Rules {
		r := &d.Rules[i]
		if r.Disabled {
			continue
		}
		compiled := c.compileRule(r)
		c.addEffects(compiled)
		candidates := c.index.candidates(&r.Match)
		for _, one := range candidates {
			one.rule, one.needs, one.written, one.at = compiled, r.Scope, r, one.at.or(r.Pos)
		}
		switch r.Action {
		case Block:
			for _, one := range candidates {
				one.until = r.Until
			}
			blocks = append(blocks, candidates...)
		case Allow:
			allows = append(allows, candidates...)
		case LogOnly:
			logOnly[r.Scope] = append(logOnly[r.Scope], candidates...)
		default:
			enforced[r.Scope] = append(enforced[r.Scope], candidates...)
		}
	}
	for i := range d.Costs {
		for _, one := range c.index.candidates(&d.Costs[i].Match) {
			one.cost, one.at = d.Costs[i].Cost, d.Costs[i].Pos
			costs = append(costs, one)
		}
	}
	c.blocks = c.index.addGroup(blocks, compareSpecific)
	c.allows = c.index.addGroup(allows, compareSpecific)
	c.costs = c.index.addGroup(costs, func(a, b *candidate) int { return 0 })
	c.addScopes(enforced, logOnly)
}

// addDefaults compiles the rule of requests that nothing else limits. It is in a group of the index, where counters are
// listed and explained.
func (c *CompiledDomain) addDefaults(r *Rule) {
	var all []*candidate
	if r != nil {
		c.fallback = c.compileRule(r)
		c.addEffects(c.fallback)
		all = []*candidate{{rule: c.fallback, needs: r.Scope, written: r, at: r.Pos}}
	}
	c.defaults = c.index.addGroup(all, compareSpecific)
}

func (c *CompiledDomain) addScopes(enforced, logOnly [scopeCount][]*candidate) {
	for s := range Scope(scopeCount) {
		own := s == ScopeUser || s == ScopeTenant // which a profile may have limits for
		if len(enforced[s])+len(logOnly[s]) == 0 && !own {
			continue
		}
		c.scopes = append(c.scopes, scopeGroups{
			scope:    s,
			enforced: c.index.addGroup(enforced[s], compareSpecific),
			logOnly:  c.index.addGroup(logOnly[s], compareSpecific),
		})
	}
}

// addNodes compiles the children of a node.
func (c *CompiledDomain) addNodes(parent *node, nodes []Node) {
	for i := range nodes {
		n := compileNode(parent, &nodes[i])
		c.addTreeLimits(n, &nodes[i])
		parent.addChild(n)
		c.addNodes(n, nodes[i].Nodes)
	}
}

func compileNode(parent *node, w *Node) *node {
	n := &node{
		at: w.Pos, key: w.Key, value: w.Value, keyGlob: hasStar(w.Key), shared: w.ShareThreshold,
		postPaid: w.PostPaid, reserve: w.Reserve, valueName: w.ValueToMetric, detailed: w.DetailedMetric,
	}
	switch {
	case n.keyGlob:
		n.glob = parseGlob(n.level())
	case hasStar(w.Value):
		n.glob = parseGlob(w.Value)
	}
	n.path = append(slices.Clone(parent.path), n)
	if !slices.ContainsFunc(n.path, func(step *node) bool { return step.keyGlob && !step.shared }) {
		entries := make([]Entry, len(n.path))
		for i, step := range n.path {
			entries[i].Key = step.key
		}
		n.pathText = string(appendPath(nil, nil, entries))
	}
	return n
}

func (n *node) addChild(child *node) {
	if hasStar(child.key) || hasStar(child.value) {
		n.wild = append(n.wild, child)
	}
	if child.value == "" {
		if n.bare == nil {
			n.bare = map[string]*node{}
		}
		n.bare[child.key] = child
		return
	}
	if n.exact == nil {
		n.exact = map[Entry]*node{}
	}
	n.exact[Entry{child.key, child.value}] = child
}

func (c *CompiledDomain) addTreeLimits(n *node, w *Node) {
	mode := limit.Enforced
	switch {
	case w.Shadow:
		mode = limit.Shadow
	case w.Quota:
		mode = limit.Quota
	}
	for i := range w.Limits {
		l := &w.Limits[i]
		e := &Effect{
			Name: l.Name, Rule: cmp.Or(l.Name, n.dotted()), Scope: ScopeDescriptor, Tree: true, Mode: mode,
			QuotaToo: w.Shadow && w.Quota, OnFailure: w.OnFailure.or(c.onFailure), Reserve: w.Reserve,
			Response: w.Response, Metadata: w.Metadata, Metric: n.levels(), Dynamic: n.isDynamic(),
			compiled: compiled{from: origin{node: w, limit: l}, lease: w.Lease.most()},
		}
		e.setLimit(l)
		compiled := treeLimit{effect: e, unlimited: l.Unlimited, tail: limitTail(l.Limit, i),
			calendar: c.calendarOf(l.CalendarUnit)}
		if len(w.Limits) > 1 {
			compiled.level = limitLevel(l, i)
			e.Metric = append(e.Metric, compiled.level)
		}
		for _, r := range l.Replaces {
			compiled.replaces = append(compiled.replaces, r.Name)
		}
		n.limits = append(n.limits, compiled)
		c.effects = append(c.effects, e)
	}
}

// Domain returns a domain in its compiled form, or nil if the Set lacks it. A nil Set lacks all.
func (s *Set) Domain(name string) *CompiledDomain {
	if s == nil {
		return nil
	}
	return s.domains[name]
}

// HasRules reports whether the domain has anything but descriptor trees, which are the reference server's.
func (d *CompiledDomain) HasRules() bool { return d.scoped }

// Domains returns the names of the domains, sorted.
func (s *Set) Domains() []string { return slices.Sorted(maps.Keys(s.domains)) }

// Effects yields every effect with its domain, domains in order: limits, blocks and allows, but no overrides, which
// requests bring along.
func (s *Set) Effects() iter.Seq2[string, *Effect] {
	return func(yield func(string, *Effect) bool) {
		for _, name := range s.Domains() {
			for _, e := range s.domains[name].effects {
				if !yield(name, e) {
					return
				}
			}
		}
	}
}
