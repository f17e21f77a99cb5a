package descriptors

import (
	"net/netip"
	"strings"
)

// NormalizePath returns the form of a path in which all that can be decoded, cut or resolved is: without scheme,
// authority, query, fragment and ;params, percent-decoded once, \ as /, with a leading slash, without empty and dot
// segments and without a trailing slash. A bad percent means itself. It returns false for a path that ext_authz
// refuses: one with a NUL, or with dot segments that servers resolve at different times and so to different endpoints.
func NormalizePath(path string) (string, bool) {
	var r readings
	normal := r.load(path)
	return normal, !r.refused
}

// cutPath returns a path without scheme, authority, query and fragment.
func cutPath(path string) string {
	path = cutAuthority(path)
	for i := range len(path) {
		if path[i] == '?' || path[i] == '#' {
			return path[:i]
		}
	}
	return path
}

// cutAuthority drops scheme and authority of an absolute form.
func cutAuthority(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	scheme, rest, found := strings.Cut(path, "://")
	if !found || !isScheme(scheme) {
		return path
	}
	i := strings.IndexAny(rest, "/\\?#")
	if i < 0 {
		return ""
	}
	return rest[i:]
}

func isScheme(text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i] | 0x20
		letter := c >= 'a' && c <= 'z'
		other := text[i] >= '0' && text[i] <= '9' || text[i] == '+' || text[i] == '-' || text[i] == '.'
		if !letter && (i == 0 || !other) {
			return false
		}
	}
	return text != ""
}

// isNormalPath reports whether there is nothing to do, which is the common case and costs no memory. It may return
// false for a normal path, but never true for another.
func isNormalPath(path string) bool {
	if path == "/" {
		return true
	}
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	last := byte('x')
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch c {
		case 0, '%', '\\', ';':
			return false
		case '/', '.':
			if last == '/' {
				return false
			}
		}
		last = c
	}
	return true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// NormalizeMethod returns the method in upper case.
func NormalizeMethod(method string) string { return strings.ToUpper(method) }

// NormalizeHost returns the host in lower case, without its port and without the dot of a full name.
func NormalizeHost(host string) string {
	return strings.TrimSuffix(cutPort(strings.ToLower(host)), ".")
}

func cutPort(host string) string {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.IndexByte(host[i:], ']') >= 0 {
		return host
	}
	if strings.IndexByte(host, ':') != i && host[0] != '[' {
		return host // an IPv6 address without brackets comes without a port
	}
	return host[:i]
}

// ParseAddress reads an address, or a network as Envoy masks one, into the network that it means: all bits of an
// address, the masked ones of a network. IPv4 in IPv6 is unmapped; a zone, and the port and the brackets of an address,
// are dropped.
func ParseAddress(text string) (netip.Prefix, bool) {
	if strings.IndexByte(text, '/') < 0 {
		addr, err := parseHost(text)
		if err != nil {
			return netip.Prefix{}, false
		}
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	network, err := netip.ParsePrefix(cutZone(text))
	if err != nil {
		return netip.Prefix{}, false
	}
	return unmapNetwork(network), true
}

// parseHost reads an address, with or without a port. An IPv6 address with a port is in brackets.
func parseHost(text string) (netip.Addr, error) {
	bracketed := strings.HasPrefix(text, "[")
	if bracketed && strings.HasSuffix(text, "]") {
		text += ":0"
	}
	if bracketed || strings.Count(text, ":") == 1 {
		pair, err := netip.ParseAddrPort(text)
		return pair.Addr(), err
	}
	return netip.ParseAddr(cutZone(text))
}

// cutZone drops the zone of an IPv6 address or network.
func cutZone(text string) string {
	i := strings.IndexByte(text, '%')
	if i < 0 || strings.IndexByte(text[:i], ':') < 0 {
		return text
	}
	if j := strings.IndexByte(text[i:], '/'); j >= 0 {
		return text[:i] + text[i+j:]
	}
	return text[:i]
}

func unmapNetwork(network netip.Prefix) netip.Prefix {
	addr, bits := network.Addr(), network.Bits()
	if addr.Is4In6() && bits >= 96 {
		return netip.PrefixFrom(addr.Unmap(), bits-96).Masked()
	}
	return network.Masked()
}

// appendNetwork appends the identity of a client's network: IPv6 by at most prefix bits, a single address without /.
func appendNetwork(b []byte, network netip.Prefix, prefix int) []byte {
	addr, bits := network.Addr(), network.Bits()
	if addr.Is6() && bits > prefix {
		bits = prefix
		network = netip.PrefixFrom(addr, bits).Masked()
	}
	if bits == addr.BitLen() {
		return network.Addr().AppendTo(b)
	}
	return network.AppendTo(b)
}
