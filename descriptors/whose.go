package descriptors

import (
	"strings"

	"github.com/spillway-mesh/spillway/keys"
)

// Whose returns who a counter of this effect belongs to, read from the counter's key: each value that it counts by,
// under the name of its scope or, in a tree, of its descriptor key. A global counter has none. What the key holds
// hashed is returned as the hash.
func (e *Effect) Whose(key string) []Entry {
	read := keys.Read(key)
	separator := "+"
	if e.Tree {
		separator = "/"
	}
	names := strings.Split(read.By, separator)
	if len(names) != len(read.Values) { // they were hashed as one
		names = []string{read.By}
	}
	entries := make([]Entry, 0, len(read.Values))
	for i, name := range names[:min(len(names), len(read.Values))] {
		if read.Address && name == ScopeClient.String() {
			name = ScopeIP.String()
		}
		entries = append(entries, Entry{Key: keys.Plain(name), Value: keys.Plain(read.Values[i])})
	}
	return entries
}

// Origin returns where the effect was written: its rule, its node of a tree, or the limit of an account. It is the zero
// value for an override and for a domain's penalty.
func (e *Effect) Origin() Pos {
	switch {
	case e.from.rule != nil:
		return e.from.rule.Pos
	case e.from.node != nil:
		return e.from.node.Pos
	case e.from.limit != nil:
		return e.from.limit.Pos
	}
	return Pos{}
}

// Written returns the rule that the effect was compiled from, which is not to be changed; nil: a tree's, an account's,
// a penalty's or an override's.
func (e *Effect) Written() *Rule { return e.from.rule }

// Needs are the attributes without which no request meets the rule.
func (r *Rule) Needs() Scope {
	needs := r.Scope
	for _, one := range []struct {
		asked bool
		scope Scope
	}{
		{len(r.Match.Users) > 0 || r.Match.Authenticated != nil && *r.Match.Authenticated, ScopeUser},
		{len(r.Match.Tenants) > 0, ScopeTenant}, {len(r.Match.Tiers) > 0, ScopeTier},
		{len(r.Match.CIDRs) > 0, ScopeIP}, {len(r.Match.Endpoints) > 0, ScopeEndpoint},
	} {
		if one.asked {
			needs |= one.scope
		}
	}
	return needs
}

// Each are the single attributes of a scope.
func (s Scope) Each() (all []Scope) {
	for _, named := range scopeNames {
		if s&named.scope != 0 {
			all = append(all, named.scope)
		}
	}
	return all
}

// Written returns what the domain was compiled from. It is not to be changed.
func (d *CompiledDomain) Written() *Domain { return d.written }

// Spelled returns a text that a pattern of a rule file matches: an endpoint's, a key's or a value's of a tree.
func Spelled(pattern string) string { return spellOut(pattern) }
