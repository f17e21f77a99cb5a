package descriptors

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Asked is who asks for what, as far as a request names it. A text that is empty is not known.
type Asked struct {
	User, Tenant, APIKey string
	Endpoint             string // normalized, without a query
	Method               string
	Address              netip.Prefix // the whole address, or a network where the mesh masks it
	AddressText          string       // of an address that cannot be read
}

// Asked fills in who asks for what. d may be nil, for a domain without rules. It allocates only for a path that is not
// normal.
func (d *CompiledDomain) Asked(req *Request, a *Asked) {
	*a = Asked{}
	if req.Subject != nil {
		a.setSubject(req.Subject)
		return
	}
	mapping := defaultAttributes
	if d != nil {
		mapping = d.attributes
	}
	var text [attrCount]string
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if attr, mapped := mapping[e.Key]; mapped && text[attr] == "" {
				text[attr] = e.Value
			}
		}
	}
	a.User, a.Tenant, a.APIKey, a.Method = text[attrUser], text[attrTenant], text[attrAPIKey], text[attrMethod]
	if text[attrEndpoint] != "" {
		a.Endpoint = shownPath(text[attrEndpoint])
	}
	if text[attrIP] == "" {
		return
	}
	var read bool
	if a.Address, read = ParseAddress(text[attrIP]); !read {
		a.AddressText = text[attrIP]
	}
}

// setSubject copies the attributes of a subject.
func (a *Asked) setSubject(s *Subject) {
	c := &s.Client
	a.User, a.Tenant, a.APIKey, a.Method = c.User, c.Tenant, c.Key, s.Method
	a.Endpoint = shownPath(s.Path)
	if c.Address.IsValid() {
		addr := c.Address.Unmap()
		a.Address = netip.PrefixFrom(addr, addr.BitLen())
	}
}

// maxShownPath is the longest path that is normalized to be shown, in bytes. A longer one is shown as it came.
const maxShownPath = 1024

// shownPath returns a path as it is matched, without its query.
func shownPath(path string) string {
	path = cutPath(path)
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if len(path) > maxShownPath || isNormalPath(path) {
		return path
	}
	normal, _ := NormalizePath(path)
	return normal
}

// EntryKeys are the keys of descriptor entries that the domain reads, sorted: those of attributes, of matches and of
// its tree.
func (d *CompiledDomain) EntryKeys() []string {
	known := map[string]bool{}
	for key := range d.attributes {
		known[key] = true
	}
	for i := range d.written.Rules {
		for key := range d.written.Rules[i].Match.Entries {
			known[key] = true
		}
	}
	addNodeKeys(known, d.written.Tree)
	return slices.Sorted(maps.Keys(known))
}

func addNodeKeys(known map[string]bool, nodes []Node) {
	for i := range nodes {
		known[nodes[i].Key] = true
		addNodeKeys(known, nodes[i].Nodes)
	}
}
