package rulediff

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/identity"
)

// prober collects what the rules of both sets name.
type prober struct {
	users, tenants, tiers, methods, paths []string
	networks                              []netip.Prefix
	entries                               []descriptors.Entry
	// API keys, by id: who they are under both sets
	accounts map[string]*[2]identity.Client
	trees    [][]descriptors.Node
}

func newProber(old, new *descriptors.CompiledDomain) *prober {
	p := &prober{accounts: map[string]*[2]identity.Client{}}
	for set, d := range []*descriptors.CompiledDomain{old, new} {
		if d != nil {
			p.take(d.Written())
			p.takeKeys(d.Written(), set)
		}
	}
	for _, list := range []*[]string{&p.users, &p.tenants, &p.tiers, &p.methods, &p.paths} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	slices.SortFunc(p.networks, func(a, b netip.Prefix) int { return cmp.Compare(a.String(), b.String()) })
	p.networks = slices.Compact(p.networks)
	slices.SortFunc(p.entries, func(a, b descriptors.Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
	p.entries = slices.Compact(p.entries)
	return p
}

func (p *prober) take(d *descriptors.Domain) {
	for i := range d.Rules {
		p.takeMatch(&d.Rules[i].Match)
	}
	for i := range d.Costs {
		p.takeMatch(&d.Costs[i].Match)
	}
	for _, a := range d.Users {
		p.users = append(p.users, a.Name)
		p.tiers = append(p.tiers, a.Tier)
	}
	for _, a := range d.Tenants {
		p.tenants = append(p.tenants, a.Name)
		p.tiers = append(p.tiers, a.Tier)
	}
	p.tiers = slices.DeleteFunc(p.tiers, func(tier string) bool { return tier == "" })
	p.trees = append(p.trees, d.Tree)
}

// takeKeys takes the API keys of one of the two sets. One that does not work yields no identity.
func (p *prober) takeKeys(d *descriptors.Domain, set int) {
	if d.Identity == nil {
		return
	}
	for _, k := range d.Identity.Keys.Keys {
		if p.accounts[k.ID] == nil {
			p.accounts[k.ID] = &[2]identity.Client{}
		}
		if !k.Revoked && (k.Expires.IsZero() || time.Now().Before(k.Expires)) {
			p.accounts[k.ID][set] = identity.Client{User: cmp.Or(k.User, k.ID), Tenant: k.Tenant, Tier: k.Tier,
				Key: k.ID, By: identity.APIKey, Authenticated: true}
		}
	}
}

func (p *prober) takeMatch(c *descriptors.Conditions) {
	p.users, p.tenants, p.tiers = append(p.users, c.Users...), append(p.tenants, c.Tenants...), append(p.tiers,
		c.Tiers...)
	p.networks = append(p.networks, c.CIDRs...)
	for _, method := range c.Methods {
		p.methods = append(p.methods, descriptors.NormalizeMethod(method))
	}
	for _, pattern := range c.Endpoints {
		p.paths = append(p.paths, descriptors.Spelled(pattern.Text))
	}
	for key, value := range c.Entries {
		p.entries = append(p.entries, descriptors.Entry{Key: key, Value: value})
	}
}

// clients are those to try: anyone who is not named, then all that are named.
func (p *prober) clients() []client {
	elsewhere := p.elsewhere()
	user := func(name string) identity.Client {
		return identity.Client{User: name, Address: elsewhere, By: identity.JWT, Authenticated: true,
			AddressTrusted: true}
	}
	other := unlike("anyone", p.users)
	all := []client{
		{name: "any other address", Client: identity.Client{Address: elsewhere, AddressTrusted: true}},
		{name: "any other user", Client: user(other)},
	}
	for _, network := range p.networks {
		all = append(all, client{name: "the first address of " + network.String(),
			Client: identity.Client{Address: network.Masked().Addr(), AddressTrusted: true}})
		all = append(all, client{name: "the last address of " + network.String(),
			Client: identity.Client{Address: lastOf(network), AddressTrusted: true}})
	}
	for _, name := range p.users {
		all = append(all, client{name: "user " + name, Client: user(name)})
	}
	for _, tier := range p.tiers {
		one := client{name: "any other user of tier " + tier, Client: user(other)}
		one.Tier = tier
		all = append(all, one)
	}
	any := client{name: "any other user of any other tenant", Client: user(other)}
	any.Tenant = unlike("any-tenant", p.tenants)
	all = append(all, any)
	for _, tenant := range p.tenants {
		one := client{name: "any other user of tenant " + tenant, Client: user(other)}
		one.Tenant = tenant
		all = append(all, one)
	}
	return append(all, p.keys(elsewhere)...)
}

// keys are the clients with an API key.
func (p *prober) keys(elsewhere netip.Addr) (all []client) {
	for _, id := range slices.Sorted(maps.Keys(p.accounts)) {
		was, is := p.accounts[id][0], p.accounts[id][1]
		was.Address, was.AddressTrusted = elsewhere, true
		is.Address, is.AddressTrusted = elsewhere, true
		all = append(all, client{name: "API key " + id, Client: is, before: &was})
	}
	return all
}

// lastOf is the last address of a network.
func lastOf(network netip.Prefix) netip.Addr {
	bytes := network.Masked().Addr().AsSlice()
	for bit := network.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// unlike is a name that differs from all names.
func unlike(name string, names []string) string {
	for slices.Contains(names, name) {
		name += "-else"
	}
	return name
}

// elsewhere is an address in none of the networks, or an invalid one where they are everywhere.
func (p *prober) elsewhere() netip.Addr {
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "100.64.0.1", "8.8.8.8", "1.1.1.1",
		"2001:db8::1"} {
		address := netip.MustParseAddr(text)
		if !slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(address) }) {
			return address
		}
	}
	return netip.Addr{}
}

// asks are the requests to try: any other, then each path by each method, then each entry.
func (p *prober) asks() []ask {
	methods := slices.Clone(p.methods)
	methods = append([]string{unlike("GET", nil)}, slices.DeleteFunc(methods,
		func(m string) bool { return m == "GET" })...)
	paths := append([]string{"/any-other-path"}, p.paths...)
	var all []ask
	for _, path := range paths {
		for _, method := range methods {
			name := method + " " + path
			if path == paths[0] {
				name = method + " any other path"
			}
			all = append(all, ask{name, descriptors.Subject{Path: path, Method: method}})
		}
	}
	for _, e := range p.entries {
		all = append(all, ask{"any request with " + e.Key + "=" + e.Value, descriptors.Subject{
			Path: paths[0], Method: "GET", Entries: []descriptors.Entry{e},
		}})
	}
	return all
}

// leaf is a descriptor that leads to a node of a tree.
type leaf struct {
	name    string
	entries []descriptors.Entry
}

// leaves are a descriptor for each node that has a limit in either tree.
func (p *prober) leaves() (all []leaf) {
	seen := map[string]bool{}
	var walk func(nodes []descriptors.Node, above []descriptors.Entry)
	walk = func(nodes []descriptors.Node, above []descriptors.Entry) {
		for i := range nodes {
			n := &nodes[i]
			e := descriptors.Entry{Key: descriptors.Spelled(n.Key), Value: descriptors.Spelled(n.Value)}
			if e.Value == "" {
				e.Value = "any"
			}
			entries := append(slices.Clone(above), e)
			if name := describe(entries); !seen[name] {
				seen[name] = true
				all = append(all, leaf{name, entries})
			}
			walk(n.Nodes, entries)
		}
	}
	for _, tree := range p.trees {
		walk(tree, nil)
	}
	return all
}

func describe(entries []descriptors.Entry) string {
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.Key+"="+e.Value)
	}
	return "descriptor (" + strings.Join(parts, ", ") + ")"
}
