package descriptors

import (
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/limit"
)

// maxSamples is how many requests of a domain are tried.
const maxSamples = 1000

// Sample is a request of one descriptor that an enforced limit of the set counts, for a person to try; ok is false
// where none was found. Domains with a descriptor tree come first, because they are written for such requests.
func (s *Set) Sample() (domain string, entries []Entry, ok bool) {
	var m Match
	names := s.Domains()
	slices.SortStableFunc(names, func(a, b string) int {
		return min(1, len(s.domains[b].written.Tree)) - min(1, len(s.domains[a].written.Tree))
	})
	for _, name := range names {
		for _, entries := range s.domains[name].samples() {
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

// samples are requests for each leaf and rule, some of which may show a limit at work.
func (c *CompiledDomain) samples() [][]Entry {
	d := c.written
	all := c.sampleNodes(nil, d.Tree, nil)
	for i := range d.Rules {
		all = append(all, sampleRule(d, &d.Rules[i]))
	}
	return all[:min(len(all), maxSamples)]
}

// sampleNodes adds the entries that lead to each leaf. Where any value will do it is a name.
func (c *CompiledDomain) sampleNodes(all [][]Entry, nodes []Node, path []Entry) [][]Entry {
	for i := range nodes {
		n := &nodes[i]
		value := spellOut(n.Value)
		if value == "" {
			value = sampleValue(c.attributes[n.Key])
		}
		here := append(slices.Clone(path), Entry{Key: spellOut(n.Key), Value: value})
		if len(n.Limits) > 0 {
			all = append(all, here)
		}
		all = c.sampleNodes(all, n.Nodes, here)
	}
	return all
}

// sampleRule is entries for all that a rule counts by and asks for.
func sampleRule(d *Domain, r *Rule) []Entry {
	given := sampleAttributes(r)
	var entries []Entry
	for attr := range attrCount {
		if value, found := given[attr]; found {
			entries = append(entries, Entry{Key: attributeKey(d, attr), Value: value})
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
		if r.Scope&named.scope == 0 {
			continue
		}
		attr := named.attr
		if attr == attrClient { // of a request without a user
			attr = attrIP
		}
		given[attr] = sampleValue(attr)
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
	sampleKeys   = [attrCount]string{"tenant", "user", "remote_address", "path", "method", "tier", "api_key"}
	sampleValues = [attrCount]string{"acme", "alice", "203.0.113.7", "/", "GET", "gold", "demo"}
)

func sampleValue(a attribute) string { return sampleValues[a] }

// attributeKey is the key of an attribute: the domain's own, else the common one.
func attributeKey(d *Domain, attr attribute) string {
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
