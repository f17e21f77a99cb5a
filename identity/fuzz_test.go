package identity_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

// FuzzToken throws authorizations at a Resolver. Only the signed tokens of the corpus name alice, however they are
// bent; credentials are refused exactly when the specification refuses them; and asking twice changes nothing.
func FuzzToken(f *testing.F) {
	f.Add("Bearer "+edToken, "", false)
	f.Add("bearer  "+edToken+" ", "Basic YTpi", true)
	for _, authorization := range worthless() {
		f.Add(authorization, "", false)
	}
	path := writeKeys(f, edKeys)
	sets := identity.NewKeySets(identity.KeySetsConfig{Verified: 100, Rejected: 100})
	f.Cleanup(sets.Close)
	r := identity.New(jwtOnly(path), sets, identity.Options{Now: atNoon})
	f.Cleanup(r.Close)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		ev := identity.Evidence{Headers: headers("authorization", first), Peer: peer}
		joined := first
		if both {
			ev.Headers = append(ev.Headers, headers("authorization", second)...)
			joined += "," + second
		}
		client, refusal := r.Resolve(&ev)
		if want := contradicts(joined); (refusal != nil) != want {
			t.Fatalf("refusal %v, want one: %v", refusal, want)
		}
		if client != unknown(peer) && client != alice {
			t.Fatalf("client %+v: neither alice nor nobody", client)
		}
		if client == alice && !strings.Contains(joined, edToken) {
			t.Fatalf("alice without her token")
		}
		again, refusalAgain := r.Resolve(&ev)
		if again != client || refusalAgain != refusal {
			t.Fatalf("asked again: %+v, %v; before: %+v, %v", again, refusalAgain, client, refusal)
		}
		ev.Headers = headers("authorization", joined)
		same, refusalSame := r.Resolve(&ev)
		if same != client || refusalSame != refusal {
			t.Fatalf("joined: %+v, %v; apart: %+v, %v", same, refusalSame, client, refusal)
		}
	})
}

// contradicts reports, by the specification, whether an authorization is refused.
func contradicts(joined string) bool {
	parts := strings.Split(joined, ",")
	for _, part := range parts {
		part = strings.Trim(part, " \t")
		if strings.HasPrefix(lowerASCII(part), "bearer") {
			return len(parts) > 1 || len(part) > 8192
		}
	}
	return false
}

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// FuzzForwarded holds the walk through x-forwarded-for against one that joins and splits, written from the rule's
// words.
func FuzzForwarded(f *testing.F) {
	f.Add("9.9.9.9, 203.0.113.7", "10.0.0.1", uint8(1), true)
	f.Add("fe80::1%eth0,[2001:db8::1]:80", "::ffff:10.0.0.2, 10.0.0.1:80", uint8(3), true)
	f.Add("x,,", "", uint8(2), false)
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	proxied := identity.New(identity.Config{ClientIP: identity.AddressConfig{TrustedProxies: []netip.Prefix{trusted}}},
		nil, identity.Options{})
	from := netip.MustParseAddr("10.9.9.9")
	f.Fuzz(func(t *testing.T, first, second string, hops uint8, both bool) {
		ev := identity.Evidence{Headers: headers("x-forwarded-for", first, "x-real-ip", "9.9.9.9"), Peer: from}
		joined := first
		if both {
			ev.Headers = append(ev.Headers, headers("x-forwarded-for", second)...)
			joined += "," + second
		}
		entries := strings.Split(joined, ",")
		counted := identity.New(identity.Config{ClientIP: identity.AddressConfig{TrustedHops: int(hops)}}, nil,
			identity.Options{})
		if got, _ := counted.Resolve(&ev); got != unknown(nthEntry(entries, int(hops), from)) {
			t.Fatalf("%d hops: %+v, want %s", hops, got, nthEntry(entries, int(hops), from))
		}
		if got, _ := proxied.Resolve(&ev); len(entries) < 1000 &&
			got != unknown(lastUntrusted(entries, trusted, from)) {
			t.Fatalf("trusted proxies: %+v, want %s", got, lastUntrusted(entries, trusted, from))
		}
		for _, addr := range []netip.Addr{nthEntry(entries, int(hops), from), lastUntrusted(entries, trusted, from)} {
			if addr.Is4In6() || addr.Zone() != "" || !addr.IsValid() {
				t.Fatalf("%s is not the one form of an address", addr)
			}
		}
	})
}

func nthEntry(entries []string, n int, from netip.Addr) netip.Addr {
	if n == 0 || n > len(entries) {
		return from
	}
	if addr, ok := entryAddress(entries[len(entries)-n]); ok {
		return addr
	}
	return from
}

func lastUntrusted(entries []string, trusted netip.Prefix, from netip.Addr) netip.Addr {
	last := from
	for i := len(entries) - 1; i >= 0 && trusted.Contains(last); i-- {
		addr, ok := entryAddress(entries[i])
		if !ok {
			break
		}
		last = addr
	}
	return last
}

// entryAddress tries the forms of an entry one by one.
func entryAddress(entry string) (netip.Addr, bool) {
	entry = strings.Trim(entry, " \t")
	for _, form := range []string{entry, entry + ":0", "[" + entry + "]:0"} {
		pair, err := netip.ParseAddrPort(form)
		if err == nil {
			return pair.Addr().Unmap().WithZone(""), true
		}
	}
	return netip.Addr{}, false
}
