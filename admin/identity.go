package admin

import (
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/records"
)

// maxName is how many characters the name of an identity has at most.
const maxName = 1024

// Whom is the part of a request that names an identity: a domain, and one of the others.
type Whom struct {
	Domain string `json:"domain,omitempty"` // may be left out where the rules have one domain
	User   string `json:"user,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	APIKey string `json:"api_key,omitempty"`
	IP     string `json:"ip,omitempty"` // an address or a network
}

// domain finds the rules of the domain that a request names.
func (a *API) domain(name string) (*descriptors.CompiledDomain, *Problem) {
	set := a.Engine.Rules()
	if set == nil {
		return nil, problem(http.StatusServiceUnavailable, "there are no rules yet")
	}
	all := set.Domains()
	if name == "" && len(all) == 1 {
		name = all[0]
	}
	if name == "" {
		return nil, cannot("domain is missing: name one of %s", strings.Join(all, ", "))
	}
	d := set.Domain(name)
	if d == nil {
		return nil, problem(http.StatusNotFound, "there are no rules for the domain %q: there are some for %s", name, strings.Join(all, ", "))
	}
	return d, nil
}

// identity is the identity that a request names.
func (a *API) identity(w *Whom) (records.Identity, *Problem) {
	d, wrong := a.domain(w.Domain)
	if wrong != nil {
		return records.Identity{}, wrong
	}
	var found []records.Identity
	for kind, name := range map[records.Kind]string{records.User: w.User, records.Tenant: w.Tenant, records.APIKey: w.APIKey, records.Network: w.IP} {
		if name == "" {
			continue
		}
		id, wrong := identityOf(d.Name, kind, name)
		if wrong != nil {
			return id, wrong
		}
		found = append(found, id)
	}
	if len(found) != 1 {
		return records.Identity{}, bad("%d identities are named: name one, by user, tenant, api_key or ip", len(found))
	}
	return found[0], nil
}

// identityOf makes an identity of a kind and a name.
func identityOf(domain string, kind records.Kind, name string) (records.Identity, *Problem) {
	id := records.Identity{Domain: domain, Kind: kind, Name: name}
	switch {
	case utf8.RuneCountInString(name) > maxName:
		return id, bad("the %s has more than %d characters", kind, maxName)
	case kind == records.Network:
		network, known := descriptors.ParseAddress(name)
		if !known {
			return id, bad("ip %q must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24", name)
		}
		id.Name, id.Network = "", netip.PrefixFrom(network.Addr(), network.Bits()).Masked()
	case strings.HasPrefix(name, "/"):
		return id, bad("%s %q looks like a path: name a %s", kind, name, kind)
	}
	return id, nil
}

// whom is an identity as answers show it.
func whom(id records.Identity) Whom {
	w := Whom{Domain: id.Domain}
	switch id.Kind {
	case records.User:
		w.User = id.Name
	case records.Tenant:
		w.Tenant = id.Name
	case records.APIKey:
		w.APIKey = id.Name
	default:
		w.IP = id.Text()
	}
	return w
}
