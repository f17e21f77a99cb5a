package identity_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

// addressCase is one request and the address that it must count on.
type addressCase struct {
	peer      string // empty: 192.0.2.1; "pipe": none
	forwarded []string
	want      string // empty: none
}

func checkAddresses(t *testing.T, cfg identity.AddressConfig, cases map[string]addressCase) {
	t.Helper()
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.IP}, ClientIP: cfg}, atNoon)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ev := identity.Evidence{Peer: peer, Headers: headers("x-real-ip", "203.0.113.9", "forwarded",
				"for=203.0.113.9")}
			if c.peer != "" {
				ev.Peer, _ = netip.ParseAddr(c.peer)
			}
			for _, value := range c.forwarded {
				ev.Headers = append(ev.Headers, headers("x-forwarded-for", value, "x-envoy-external-address",
					"203.0.113.9")...)
			}
			var want netip.Addr
			if c.want != "" {
				want = netip.MustParseAddr(c.want)
			}
			got, refusal := r.Resolve(&ev)
			if got != unknown(want) || refusal != nil {
				t.Errorf("client %+v, refusal %v, want the address %s", got, refusal, want)
			}
		})
	}
}

func TestWithoutTrustThePeerIsTheClient(t *testing.T) {
	checkAddresses(t, identity.AddressConfig{}, map[string]addressCase{
		"no header":               {"", nil, "192.0.2.1"},
		"spoofed":                 {"", []string{"203.0.113.7"}, "192.0.2.1"},
		"peer IPv4 in IPv6":       {"::ffff:198.51.100.1", nil, "198.51.100.1"},
		"peer with a zone":        {"fe80::1%eth0", nil, "fe80::1"},
		"a pipe":                  {"pipe", []string{"203.0.113.7"}, ""},
		"peer in the range of v6": {"2001:db8::1", nil, "2001:db8::1"},
	})
}

func TestTrustedHops(t *testing.T) {
	checkAddresses(t, identity.AddressConfig{TrustedHops: 1}, map[string]addressCase{
		"one entry":                 {"", []string{"203.0.113.7"}, "203.0.113.7"},
		"spoofed on the left":       {"", []string{"1.1.1.1, 2.2.2.2,203.0.113.7"}, "203.0.113.7"},
		"spoofed in a header more":  {"", []string{"1.1.1.1", "203.0.113.7"}, "203.0.113.7"},
		"no header":                 {"", nil, "192.0.2.1"},
		"empty header":              {"", []string{""}, "192.0.2.1"},
		"last entry is empty":       {"", []string{"203.0.113.7,"}, "192.0.2.1"},
		"last header is empty":      {"", []string{"203.0.113.7", ""}, "192.0.2.1"},
		"blanks around":             {"", []string{"\t 203.0.113.7 \t"}, "203.0.113.7"},
		"port":                      {"", []string{"203.0.113.7:4711"}, "203.0.113.7"},
		"IPv6":                      {"", []string{"2001:DB8:0:0::1"}, "2001:db8::1"},
		"IPv6 in brackets":          {"", []string{"[2001:db8::1]"}, "2001:db8::1"},
		"IPv6 with a port":          {"", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		"zone":                      {"", []string{"fe80::1%eth0"}, "fe80::1"},
		"another zone":              {"", []string{"fe80::1%25eth1"}, "fe80::1"},
		"zone and port":             {"", []string{"[fe80::1%x]:443"}, "fe80::1"},
		"IPv4 in IPv6":              {"", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		"IPv4 in IPv6, hexadecimal": {"", []string{"::FFFF:cb00:7107"}, "203.0.113.7"},
		"IPv4 in IPv6, port":        {"", []string{"[::ffff:203.0.113.7]:1"}, "203.0.113.7"},
		"a name":                    {"", []string{"localhost"}, "192.0.2.1"},
		"unknown":                   {"", []string{"unknown"}, "192.0.2.1"},
		"hidden name":               {"", []string{"_gazonk"}, "192.0.2.1"},
		"quoted":                    {"", []string{`"203.0.113.7"`}, "192.0.2.1"},
		"an element of Forwarded":   {"", []string{"for=203.0.113.7"}, "192.0.2.1"},
		"leading zero":              {"", []string{"203.0.113.07"}, "192.0.2.1"},
		"three numbers":             {"", []string{"203.0.113"}, "192.0.2.1"},
		"one number":                {"", []string{"3405803783"}, "192.0.2.1"},
		"hexadecimal":               {"", []string{"0xcb.0.113.7"}, "192.0.2.1"},
		"too large":                 {"", []string{"203.0.113.256"}, "192.0.2.1"},
		"a range":                   {"", []string{"203.0.113.0/24"}, "192.0.2.1"},
		"port out of range":         {"", []string{"203.0.113.7:99999"}, "192.0.2.1"},
		"port missing":              {"", []string{"203.0.113.7:"}, "192.0.2.1"},
		"IPv4 in brackets":          {"", []string{"[203.0.113.7]"}, "192.0.2.1"},
		"bracket open":              {"", []string{"[2001:db8::1"}, "192.0.2.1"},
		"blank inside":              {"", []string{"203.0. 113.7"}, "192.0.2.1"},
		"semicolon":                 {"", []string{"203.0.113.7;1.1.1.1"}, "192.0.2.1"},
		"not UTF-8":                 {"", []string{"203.0.113.7\xff"}, "192.0.2.1"},
		"NUL":                       {"", []string{"203.0.113.7\x00"}, "192.0.2.1"},
		"other digits":              {"", []string{"２03.0.113.7"}, "192.0.2.1"},
		"through a pipe":            {"pipe", []string{"203.0.113.7"}, "203.0.113.7"},
		"nothing through a pipe":    {"pipe", []string{"x"}, ""},
	})
	checkAddresses(t, identity.AddressConfig{TrustedHops: 3}, map[string]addressCase{
		"third from the right":      {"", []string{"9.9.9.9, 203.0.113.7, 10.0.0.2, 10.0.0.1"}, "203.0.113.7"},
		"over several headers":      {"", []string{"9.9.9.9,203.0.113.7", "10.0.0.2", "10.0.0.1"}, "203.0.113.7"},
		"exactly three":             {"", []string{"203.0.113.7,10.0.0.2,10.0.0.1"}, "203.0.113.7"},
		"shorter":                   {"", []string{"203.0.113.7,10.0.0.1"}, "192.0.2.1"},
		"the entry is garbage":      {"", []string{"9.9.9.9,x,10.0.0.2,10.0.0.1"}, "192.0.2.1"},
		"garbage to its right":      {"", []string{"203.0.113.7,x,y"}, "203.0.113.7"},
		"empty entries are counted": {"", []string{"203.0.113.7,,"}, "203.0.113.7"},
	})
}

func TestTrustedProxies(t *testing.T) {
	ranges := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.1.2.3/8"),
		netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("::ffff:172.16.0.0/108"), {},
	}
	checkAddresses(t, identity.AddressConfig{TrustedProxies: ranges}, map[string]addressCase{
		"first that is not trusted":       {"", []string{"9.9.9.9, 203.0.113.7, 10.0.0.2, 10.0.0.1"}, "203.0.113.7"},
		"over several headers":            {"", []string{"9.9.9.9", "203.0.113.7,10.0.0.2", "10.0.0.1"}, "203.0.113.7"},
		"peer is not trusted":             {"198.51.100.1", []string{"203.0.113.7"}, "198.51.100.1"},
		"no header":                       {"", nil, "192.0.2.1"},
		"empty header":                    {"", []string{""}, "192.0.2.1"},
		"all are trusted":                 {"", []string{"10.0.0.3,10.0.0.2,10.0.0.1"}, "10.0.0.3"},
		"garbage at once":                 {"", []string{"203.0.113.7,x"}, "192.0.2.1"},
		"garbage behind trusted ones":     {"", []string{"203.0.113.7,x,10.0.0.2,10.0.0.1"}, "10.0.0.2"},
		"garbage behind the client":       {"", []string{"x,203.0.113.7,10.0.0.1"}, "203.0.113.7"},
		"empty entry behind trusted ones": {"", []string{"203.0.113.7,,10.0.0.1"}, "10.0.0.1"},
		"proxy in IPv6":                   {"2001:db8::9", []string{"2001:db9::7, [2001:db8::1]:80"}, "2001:db9::7"},
		"proxy IPv4 in IPv6":              {"", []string{"203.0.113.7,::ffff:10.0.0.1"}, "203.0.113.7"},
		"range IPv4 in IPv6":              {"", []string{"203.0.113.7,172.16.5.5"}, "203.0.113.7"},
		"peer IPv4 in IPv6":               {"::ffff:192.0.2.77", []string{"203.0.113.7"}, "203.0.113.7"},
		"proxy with a port":               {"", []string{"203.0.113.7:80,10.0.0.1:80"}, "203.0.113.7"},
		"a pipe":                          {"pipe", []string{"203.0.113.7"}, ""},
		"a thousand trusted ones": {"", []string{"203.0.113.7" + strings.Repeat(",10.0.0.1", 999)},
			"203.0.113.7"},
		"no end of trusted ones": {"", []string{"203.0.113.7" + strings.Repeat(",10.0.0.1", 1000)}, "10.0.0.1"},
	})
}
