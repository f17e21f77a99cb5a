package descriptors

import (
	"net/netip"
	"strings"

	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// Entries that a Subject has besides its own, for conditions on entries.
const (
	hostEntry = "host"    // in lower case, without port
	keyEntry  = "api_key" // the id of the API key that was used
)

var badHost = &identity.Refusal{Status: 400, Message: "The host ends in two dots: send its name, with one dot at most."}

var badPath = &identity.Refusal{
	Status: 400, Message: "The path has a NUL, or dot segments that servers read in different ways, or is long and " +
		"has other such parts: send a plain path.",
}

// Check returns the refusal of a request that cannot be matched, or nil. Servers resolve the dot segments of such a
// path at different times, and so to different endpoints. Some take a host with two dots at its end for the one without
// them. The refusal is shared and not to be changed.
func (s *Subject) Check() *identity.Refusal {
	var r readings
	if r.refuses(s.Path) {
		return badPath
	}
	if strings.HasSuffix(cutPort(s.Host), "..") {
		return badHost
	}
	return nil
}

// trusted returns the scopes whose identities are who they claim to be, which a penalty needs: a client must not be
// able to cause one for another client. Over RLS the mesh identifies who asks, so all are.
func (r *Request) trusted() Scope {
	if r.Subject == nil {
		return allScopes
	}
	c, trusted := &r.Subject.Client, ScopeEndpoint
	if c.Authenticated {
		trusted |= ScopeTenant | ScopeUser | ScopeAPIKey | ScopeTier
	}
	if c.AddressTrusted {
		trusted |= ScopeIP
	}
	if c.Authenticated && c.User != "" || c.AddressTrusted && c.User == "" {
		trusted |= ScopeClient
	}
	return trusted
}

// setSubject fills in the attributes of a subject. No descriptor supplied them.
func (a *attributes) setSubject(s *Subject) {
	*a = attributes{first: -1}
	for i := range a.from {
		a.from[i] = -1
	}
	c := &s.Client
	a.text = [attrCount]string{
		attrTenant: c.Tenant, attrUser: c.User, attrTier: c.Tier, attrEndpoint: s.Path, attrMethod: s.Method,
		attrAPIKey: c.Key,
	}
	if c.Address.IsValid() {
		addr := c.Address.Unmap()
		a.network = netip.PrefixFrom(addr, addr.BitLen())
	}
}

// gatherSubject adds the entries that hold for a subject.
func (t *terms) gatherSubject(f *facts, s *Subject) {
	for _, e := range s.Entries {
		t.gatherEntry(f, e)
	}
	if s.Host != "" {
		t.gatherEntry(f, Entry{hostEntry, NormalizeHost(s.Host)})
	}
	if s.Client.Key != "" {
		t.gatherEntry(f, Entry{keyEntry, s.Client.Key})
	}
}

func (t *terms) gatherEntry(f *facts, e Entry) {
	if id, known := t.entries[e]; known {
		f.addFact(id)
	}
}

// headerCost returns the value of the domain's cost header, and whether the request has one. A value that cannot be
// read counts as 1, and so do several: which of them the mesh set is unknown.
func (d *CompiledDomain) headerCost(req *Request) (cost int64, given bool) {
	if d.CostHeader == "" || req.Subject == nil || req.Evidence == nil {
		return 0, false
	}
	for i := range req.Evidence.Headers {
		h := &req.Evidence.Headers[i]
		if h.Name != d.CostHeader {
			continue
		}
		if given {
			return 1, true
		}
		cost, given = parseCost(h.Value), true
	}
	return cost, given
}

// parseCost reads a whole number from 1, at most limit.MaxCost. Anything else is 1.
func parseCost(text string) int64 {
	text = strings.Trim(text, " \t")
	cost := int64(0)
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return 1
		}
		cost = min(cost*10+int64(text[i]-'0'), limit.MaxCost)
	}
	return max(cost, 1)
}
