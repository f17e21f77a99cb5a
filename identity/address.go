package identity

import (
	"net/netip"
	"slices"
	"strings"
)

// maxForwarded is how many entries of x-forwarded-for are walked through at most. No real chain of proxies comes near;
// a client that writes thousands of trusted addresses buys no time with them.
const maxForwarded = 1000

// addresses finds the client's address.
type addresses struct {
	hops    int
	proxies prefixes
}

func newAddresses(cfg AddressConfig) addresses {
	return addresses{hops: cfg.TrustedHops, proxies: newPrefixes(cfg.TrustedProxies)}
}

// client is the client's address, unmapped and without a zone, or the invalid one when not even the peer's is known.
func (a *addresses) client(ev *Evidence) netip.Addr {
	peer := canonical(ev.Peer)
	entries := forwarded{headers: ev.Headers}
	switch {
	case a.proxies.empty():
		return entries.nth(a.hops, peer)
	case a.proxies.contain(peer):
		return entries.beyond(&a.proxies, peer)
	}
	return peer
}

// forwarded walks the entries of all x-forwarded-for headers from the right: as if they were joined in order, which is
// how a mesh joins them.
type forwarded struct {
	headers []Header // that were not begun yet
	rest    string   // of the header that was, without the entries that were given
	begun   bool
}

// next is the next entry to the left, with no blanks around it.
func (f *forwarded) next() (string, bool) {
	for !f.begun {
		last := len(f.headers) - 1
		if last < 0 {
			return "", false
		}
		f.begun, f.rest = f.headers[last].Name == "x-forwarded-for", f.headers[last].Value
		f.headers = f.headers[:last]
	}
	comma := strings.LastIndexByte(f.rest, ',')
	entry := f.rest[comma+1:]
	f.begun, f.rest = comma >= 0, f.rest[:max(comma, 0)]
	return trimBlanks(entry), true
}

// nth is the nth entry from the right, or the peer if it is missing or not an address.
func (f *forwarded) nth(n int, peer netip.Addr) netip.Addr {
	entry := ""
	for range n {
		next, ok := f.next()
		if !ok {
			return peer
		}
		entry = next
	}
	if entry == "" {
		return peer
	}
	addr, ok := parseAddress(entry)
	if !ok {
		return peer
	}
	return addr
}

// beyond is the first address from the right that is not a trusted proxy, or the leftmost when all are. It starts from
// a trusted peer and goes no further than trusted proxies vouch: an entry that is not an address ends it at the last of
// them.
func (f *forwarded) beyond(proxies *prefixes, peer netip.Addr) netip.Addr {
	last := peer
	for range maxForwarded {
		entry, ok := f.next()
		if !ok {
			return last
		}
		addr, ok := parseAddress(entry)
		if !ok {
			return last
		}
		if !proxies.contain(addr) {
			return addr
		}
		last = addr
	}
	return last
}

// parseAddress reads an entry: an address, with or without a port, an IPv6 one then in brackets. Quotes, names, numbers
// with leading zeros and all else are not addresses.
func parseAddress(entry string) (netip.Addr, bool) {
	inner, bracketed := strings.CutPrefix(entry, "[")
	if inner, closed := strings.CutSuffix(inner, "]"); bracketed && closed {
		addr, err := netip.ParseAddr(inner)
		return canonical(addr), err == nil && addr.Is6()
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		return canonical(addr), true
	}
	pair, err := netip.ParseAddrPort(entry)
	return canonical(pair.Addr()), err == nil
}

// canonical is the one form of an address: two spellings of it would be two clients.
func canonical(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// prefixes is a set of address ranges. Asking it costs one lookup for each length that occurs, however many ranges
// there are.
type prefixes struct {
	v4, v6 []int // lengths that occur
	ranges map[netip.Prefix]bool
}

func newPrefixes(list []netip.Prefix) prefixes {
	p := prefixes{ranges: make(map[netip.Prefix]bool, len(list))}
	for _, prefix := range list {
		addr, bits := prefix.Addr(), prefix.Bits()
		if addr.Is4In6() && bits >= 96 {
			bits -= 96
		}
		prefix, err := canonical(addr).Prefix(bits)
		if err != nil {
			continue // the invalid prefix, which contains nothing
		}
		p.ranges[prefix] = true
		lengths := &p.v6
		if prefix.Addr().Is4() {
			lengths = &p.v4
		}
		if !slices.Contains(*lengths, bits) {
			*lengths = append(*lengths, bits)
		}
	}
	return p
}

func (p *prefixes) empty() bool { return len(p.ranges) == 0 }

// contain reports whether one of the ranges holds an address; none holds the invalid one.
func (p *prefixes) contain(addr netip.Addr) bool {
	lengths := p.v6
	if addr.Is4() {
		lengths = p.v4
	}
	for _, bits := range lengths {
		prefix, err := addr.Prefix(bits)
		if err == nil && p.ranges[prefix] {
			return true
		}
	}
	return false
}
