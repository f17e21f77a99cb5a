package descriptors

import (
	"net/netip"
	"slices"
)

// attribute is one fact about a request, from a descriptor's entry or a Subject.
type attribute uint8

const (
	attrTenant attribute = iota
	attrUser
	attrIP
	attrEndpoint
	attrMethod
	attrTier
	attrAPIKey
	attrClient // the user where one is known, else the ip
	attrCount
)

// attributeWords are the words of the attributes in Domain.Attributes. attrClient has none: it is made of others.
var attributeWords = [...]string{
	attrTenant: "tenant", attrUser: "user", attrIP: "ip", attrEndpoint: "endpoint", attrMethod: "method",
	attrTier:   "tier",
	attrAPIKey: "api_key",
}

var attributeNames = func() map[string]attribute {
	names := map[string]attribute{}
	for attr, word := range attributeWords {
		names[word] = attribute(attr)
	}
	return names
}()

// AttributeNames returns the words that Domain.Attributes may have as values.
func AttributeNames() []string { return slices.Clone(attributeWords[:]) }

// defaultAttributes maps the keys that Envoy and its users commonly send.
var defaultAttributes = map[string]attribute{
	"remote_address": attrIP, "masked_remote_address": attrIP,
	"tenant": attrTenant, "tenant_id": attrTenant, "org_id": attrTenant,
	"user": attrUser, "user_id": attrUser, "sub": attrUser,
	"path": attrEndpoint, "PATH": attrEndpoint, ":path": attrEndpoint, "endpoint": attrEndpoint,
	"method": attrMethod, ":method": attrMethod,
	"tier": attrTier, "plan": attrTier,
	"api_key": attrAPIKey,
}

// attributes are those of one request. An empty text means none.
type attributes struct {
	text    [attrCount]string
	from    [attrCount]int // descriptor that supplied it, or -1
	network netip.Prefix   // of the ip, when it is one
	skip    []bool         // descriptors that supply nothing, because a post-paid leaf takes them; nil: all supply
	first   int            // first descriptor that supplies something, or -1
	guest   bool           // the client is an address, because no user is known
}

func (a *attributes) has(attr attribute) bool { return a.text[attr] != "" }

// skips reports whether descriptor i feeds the tree alone.
func (a *attributes) skips(i int) bool { return a.skip != nil && a.skip[i] }

// scope returns the scopes for which there is a value.
func (a *attributes) scope() Scope {
	var s Scope
	for _, named := range scopeNames {
		if a.text[named.attr] != "" {
			s |= named.scope
		}
	}
	return s
}

// setClient makes the user the client, or the address where no user is known.
func (a *attributes) setClient() {
	is := attrUser
	a.guest = !a.has(attrUser)
	if a.guest {
		is = attrIP
	}
	a.text[attrClient], a.from[attrClient] = a.text[is], a.from[is]
}

// gather reads the attributes from all descriptors. The first value that is not empty wins.
func (a *attributes) gather(req *Request, mapping map[string]attribute) {
	a.text, a.first, a.network = [attrCount]string{}, -1, netip.Prefix{}
	for i := range req.Descriptors {
		if a.skips(i) {
			continue
		}
		if a.first < 0 {
			a.first = i
		}
		for _, e := range req.Descriptors[i].Entries {
			attr, mapped := mapping[e.Key]
			if mapped && e.Value != "" && a.text[attr] == "" {
				a.text[attr], a.from[attr] = e.Value, i
			}
		}
	}
}

// normalize brings endpoint, method and address into the form in which they are compared and counted, and takes the
// readings of the path. An address that cannot be read is taken unchanged.
func (a *attributes) normalize(ipv6Prefix int, buf []byte, paths *readings) []byte {
	if a.has(attrEndpoint) {
		a.text[attrEndpoint] = paths.load(a.text[attrEndpoint])
	} else {
		paths.none()
	}
	if a.has(attrMethod) {
		a.text[attrMethod] = NormalizeMethod(a.text[attrMethod])
	}
	if a.has(attrIP) {
		a.network, _ = ParseAddress(a.text[attrIP])
	}
	if !a.network.IsValid() {
		return buf
	}
	buf = appendNetwork(buf[:0], a.network, ipv6Prefix)
	if string(buf) != a.text[attrIP] {
		a.text[attrIP] = string(buf)
	}
	return buf
}

// reports returns the descriptor on which a rule of that scope reports: the first that supplied one of its attributes,
// for global the first of all, -1 without one.
func (a *attributes) reports(s Scope) int {
	if s == ScopeGlobal {
		return a.first
	}
	first := -1
	for _, named := range scopeNames {
		if s&named.scope != 0 && (first < 0 || a.from[named.attr] < first) {
			first = a.from[named.attr]
		}
	}
	return first
}
