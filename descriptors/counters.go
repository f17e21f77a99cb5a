package descriptors

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/limit"
)

// Holder is whose counters are looked for. An empty field is not given.
type Holder struct{ Tenant, User, IP, Endpoint, APIKey, Tier string }

// Counter is one counter, or the record of a penalty alone, as the keys of charges name them.
type Counter struct {
	Domain string
	Effect *Effect
	Charge limit.Charge // a question about what is left
	Idle   string       // why no request of the holder spends from it; empty: one may
}

// Unlisted is a rule that counts by the holder and by something that is not given.
type Unlisted struct {
	Rule  string   `json:"rule"`
	Scope string   `json:"scope"`
	Lacks []string `json:"lacks"` // words of what is not given
}

// holders is the memory of one search for counters.
type holders struct {
	domain   *CompiledDomain
	match    Match
	have     Scope
	by       Scope // what is given of who asks; 0: nothing
	found    []Counter
	unlisted []Unlisted
	seen     map[string]bool
	idle     string                   // of the counters that are added
	beaten   map[*compiledRule]string // limits of the holder's own that a rule takes the place of, with the reason
	who      [3]string                // user, tenant and tier, as far as they are known
}

// whoScopes are the scopes that identify who asks.
const whoScopes = ScopeTenant | ScopeUser | ScopeIP | ScopeAPIKey | ScopeClient

// Counters returns the counters of rules, trees and own limits that count by the holder, whether or not a request of it
// would meet their other conditions, and the rules whose counters it cannot list. A holder that names none of these
// scopes gets the counters that count by none of them.
func (d *CompiledDomain) Counters(of Holder, known *Profiles) (found []Counter, unlisted []Unlisted) {
	h := &holders{domain: d, seen: map[string]bool{}, beaten: map[*compiledRule]string{}}
	s := &h.match.scratch
	s.attrs.first = -1
	s.attrs.text = [attrCount]string{
		attrTenant: of.Tenant, attrUser: of.User, attrIP: of.IP, attrEndpoint: of.Endpoint, attrAPIKey: of.APIKey,
		attrTier: of.Tier,
	}
	s.key = s.attrs.normalize(d.ipv6Prefix, s.key, &s.readings)
	s.attrs.setClient()
	h.have = s.attrs.scope()
	if known == nil {
		known = &Profiles{}
	}
	h.who = [...]string{of.User, of.Tenant, cmp.Or(of.Tier, profileTier(known.APIKey), profileTier(known.User),
		d.users[of.User].tier)}
	h.by = h.have & whoScopes
	for number := range d.index.groups {
		if number == d.blocks || number == d.allows || number == d.costs {
			continue
		}
		h.addGroup(number, h.ownOf(number, of, known))
	}
	h.addOwn(of, known)
	h.idle = ""
	if d.gate != nil && h.have&ScopeClient != 0 {
		h.addGate()
	}
	h.addNodes(&d.tree, nil, false)
	return h.found, h.unlisted
}

// addRule adds the counters of a rule under one of its patterns.
func (h *holders) addRule(r *compiledRule, p *pattern) {
	needs := r.scope
	if r.endpoint {
		needs &^= ScopeEndpoint
	}
	switch {
	case h.by == 0 && needs&whoScopes != 0, h.by != 0 && needs&h.by == 0:
		return
	case needs&^h.have != 0:
		h.lack(r, needs&^h.have)
		return
	}
	h.domain.appendRuleHead(&h.match.scratch, r, p)
	h.addLimits(r, string(h.match.scratch.key))
}

// lack profiles, once, a rule whose counters cannot be listed.
func (h *holders) lack(r *compiledRule, lacks Scope) {
	rule := r.limits[0].effect.Rule
	if h.seen["lacks "+rule] {
		return
	}
	h.seen["lacks "+rule] = true
	h.unlisted = append(h.unlisted, Unlisted{rule, r.scope.String(), strings.Split(lacks.String(), "+")})
}

// addLimits adds the counters of a rule whose keys begin with head.
func (h *holders) addLimits(r *compiledRule, head string) {
	for i := range r.limits {
		l := &r.limits[i]
		if l.unlimited {
			continue
		}
		c := limit.Charge{Key: head + l.tail, Limit: l.calendar.limit(l.effect), Cost: 1, Op: limit.Peek}
		if r.penalty != nil {
			c.Penalty, c.PenaltyKey = r.penalty, head+r.penaltyTail
		}
		h.addCounter(l.effect, c)
	}
}

// addCounter adds a counter, once.
func (h *holders) addCounter(e *Effect, c limit.Charge) {
	if !h.seen[c.Key] {
		h.seen[c.Key] = true
		h.found = append(h.found, Counter{h.domain.Name, e, c, h.idle})
	}
}

// addOwn adds the limits that the holder has of its own, by the rule file and by profiles.
func (h *holders) addOwn(of Holder, known *Profiles) {
	d := h.domain
	for _, own := range []*compiledRule{
		d.profileOwn(known.Tenant), d.profileOwn(known.User), d.profileOwn(known.APIKey),
		d.tenants[of.Tenant].own, d.users[of.User].own, d.clientKeys[of.APIKey].own,
	} {
		if own == nil {
			continue
		}
		h.idle = h.beaten[own]
		if own.clientKey != "" {
			h.match.scratch.attrs.text[attrUser] = of.APIKey
		}
		d.appendRuleHead(&h.match.scratch, own, nil)
		h.match.scratch.attrs.text[attrUser] = of.User
		h.addLimits(own, string(h.match.scratch.key))
	}
}

// addGate adds the record of the domain's penalty.
func (h *holders) addGate() {
	g := h.domain.gate
	h.domain.appendRuleHead(&h.match.scratch, &g.rule, nil)
	head := string(h.match.scratch.key)
	h.addCounter(g.effect, limit.Charge{Key: head + g.tail, Limit: gateLimit, Op: limit.Peek, Penalty: g.penalty,
		PenaltyKey: head + g.record})
}

// addNodes adds the counters of the nodes below n whose entries are all given: by their values, or by the attributes
// that their keys mean; with: one of them names who asks.
func (h *holders) addNodes(n *node, entries []Entry, with bool) {
	children := slices.Collect(maps.Values(n.exact))
	children = slices.AppendSeq(children, maps.Values(n.bare))
	for _, child := range children {
		if child.keyGlob || hasStar(child.value) {
			continue
		}
		e, who, given := h.entryOf(child)
		if !given {
			continue
		}
		below := append(slices.Clone(entries), e)
		if with || who {
			h.addLeaf(child, below)
		}
		h.addNodes(child, below, with || who)
	}
}

// entryOf is the entry by which the holder meets a node, whether it names who asks, and whether it is given.
func (h *holders) entryOf(n *node) (e Entry, who, given bool) {
	if n.value != "" {
		return Entry{n.key, n.value}, false, true
	}
	attr, mapped := h.domain.attributes[n.key]
	if !mapped {
		return Entry{}, false, false
	}
	text := h.match.scratch.attrs.text[attr]
	return Entry{n.key, text}, attr != attrEndpoint && attr != attrMethod && attr != attrTier, text != ""
}

// addLeaf adds the counters of a node.
func (h *holders) addLeaf(n *node, entries []Entry) {
	if h.domain.tree.descend(entries) != n {
		return
	}
	s := &h.match.scratch
	h.domain.appendTreeHead(s, n, entries)
	head := string(s.key)
	for i := range n.limits {
		l := &n.limits[i]
		if !l.unlimited {
			h.addCounter(l.effect, limit.Charge{Key: head + l.tail, Limit: l.calendar.limit(l.effect), Cost: 1,
				Op: limit.Peek})
		}
	}
}

// CounterOf finds the limit of a key, and its domain.
func (s *Set) CounterOf(key string) (domain string, c Counter, found bool) {
	longest := 0
	for name, d := range s.domains {
		if !strings.HasPrefix(key, d.head) || len(key) == len(d.head) ||
			!strings.ContainsRune("|}~", rune(key[len(d.head)])) && d.seal != "" {
			continue
		}
		d.tails(func(tail, penalty string, r *Effect, l limit.Limit, p *limit.Penalty) {
			if len(tail) <= longest || !strings.HasSuffix(key, tail) {
				return
			}
			longest, domain, found = len(tail), name, true
			c = Counter{Domain: name, Effect: r, Charge: limit.Charge{Key: key, Limit: l, Cost: 1, Op: limit.Peek}}
			if p != nil {
				c.Charge.Penalty, c.Charge.PenaltyKey = p, strings.TrimSuffix(key, tail)+penalty
			}
		})
	}
	return domain, c, found
}

// tails yields how the keys of all limits end.
func (d *CompiledDomain) tails(yield func(tail, penalty string, e *Effect, l limit.Limit, p *limit.Penalty)) {
	rule := func(r *compiledRule) {
		if r == nil {
			return
		}
		for i := range r.limits {
			if l := &r.limits[i]; !l.unlimited {
				yield(l.tail, r.penaltyTail, l.effect, l.calendar.limit(l.effect), r.penalty)
			}
		}
	}
	for number := range d.index.groups {
		for _, c := range d.index.groups[number].all {
			rule(c.rule)
		}
	}
	for _, accounts := range []map[string]account{d.users, d.tenants, d.clientKeys} {
		for _, a := range accounts {
			rule(a.own)
		}
	}
	d.tree.tails(yield)
}

// tails yields how the keys of the limits below a node end.
func (n *node) tails(yield func(tail, penalty string, e *Effect, l limit.Limit, p *limit.Penalty)) {
	for i := range n.limits {
		if l := &n.limits[i]; !l.unlimited && n.pathText != "" {
			yield(":"+n.pathText+l.tail, "", l.effect, l.calendar.limit(l.effect), nil)
		}
	}
	for _, child := range n.exact {
		child.tails(yield)
	}
	for _, child := range n.bare {
		child.tails(yield)
	}
}
