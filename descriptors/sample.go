package descriptors

import (
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/limit"
)

// maxSamples is how many requests a domain keeps that may show a limit at work.
const maxSamples = 16

// Sample is a request of one descriptor that an enforced limit of the set counts, for a person to try; ok is false where none was found.
func (s *Set) Sample() (domain string, entries []Entry, ok bool) {
	var m Match
	for _, name := range s.Domains() {
		for _, entries := range s.domains[name].samples {
			req := Request{Domain: name, Descriptors: []Descriptor{{Entries: entries}}}
			m.Reset()
			s.Match(&req, &m)
			enforced := slices.ContainsFunc(m.Charges, func(c limit.Charge) bool { return c.Mode == limit.Enforced })
			if enforced && m.Block == nil && m.Exempt == nil {
				return name, entries, true
			}
		}
	}
	return "", nil, false
}

// addSamples keeps a request for each rule and leaf, as far as there is room.
func (c *CompiledDomain) addSamples(d *Domain) {
	c.sampleNodes(d.Tree, nil)
	for i := range d.Rules {
		c.addSample(c.sampleRule(d, &d.Rules[i]))
	}
}

func (c *CompiledDomain) addSample(entries []Entry) {
	if len(c.samples) < maxSamples {
		c.samples = append(c.samples, entries)
	}
}

// sampleNodes adds the entries that lead to each leaf. Where any value will do it is a name.
func (c *CompiledDomain) sampleNodes(nodes []Node, path []Entry) {
	for i := range nodes {
		n := &nodes[i]
		value := spellOut(n.Value)
		if value == "" {
			value = sampleValue(c.attributes[n.Key])
		}
		here := append(slices.Clone(path), Entry{Key: spellOut(n.Key), Value: value})
		if len(n.Limits) > 0 {
			c.addSample(here)
		}
		c.sampleNodes(n.Nodes, here)
	}
}

// sampleRule is entries for all that a rule counts by and asks for.
func (c *CompiledDomain) sampleRule(d *Domain, r *Rule) []Entry {
	given := sampleAttributes(r)
	var entries []Entry
	for attr := range attrCount {
		if value, found := given[attr]; found {
			entries = append(entries, Entry{Key: entryKey(d, attr), Value: value})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Match.Entries)) {
		entries = append(entries, Entry{Key: key, Value: r.Match.Entries[key]})
	}
	return entries
}

// sampleAttributes are values of the attributes that a rule counts by and asks for. There is at least one.
func sampleAttributes(r *Rule) map[attribute]string {
	given := map[attribute]string{}
	for _, named := range scopeNames {
		if r.Scope&named.scope != 0 {
			given[attributeNames[named.name]] = sampleValue(attributeNames[named.name])
		}
	}
	for attr, values := range map[attribute][]string{
		attrUser: r.Match.Users, attrTenant: r.Match.Tenants, attrTier: r.Match.Tiers, attrMethod: r.Match.Methods,
	} {
		if len(values) > 0 {
			given[attr] = values[0]
		}
	}
	if len(r.Match.Endpoints) > 0 {
		given[attrEndpoint] = spellOut(r.Match.Endpoints[0].Text)
	}
	if len(r.Match.CIDRs) > 0 {
		given[attrIP] = r.Match.CIDRs[0].Addr().String()
	}
	if len(given) == 0 {
		given[attrEndpoint] = sampleValue(attrEndpoint) // a request has an entry
	}
	return given
}

// sampleKeys are how Envoy and its users commonly send an attribute, and sampleValues what they could send.
var (
	sampleKeys   = [attrCount]string{"tenant", "user", "remote_address", "path", "method", "tier"}
	sampleValues = [attrCount]string{"acme", "alice", "203.0.113.7", "/", "GET", "gold"}
)

func sampleValue(a attribute) string { return sampleValues[a] }

// entryKey is the key of an attribute: the domain's own, else the common one.
func entryKey(d *Domain, attr attribute) string {
	for _, key := range slices.Sorted(maps.Keys(d.Attributes)) {
		if attributeNames[d.Attributes[key]] == attr {
			return key
		}
	}
	return sampleKeys[attr]
}

// spellOut is a text that a pattern matches.
func spellOut(pattern string) string {
	return strings.ReplaceAll(strings.ReplaceAll(pattern, "**", "a"), "*", "a")
}
