package identity_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/identity"
)

func TestTheFirstEvidenceOfTheOrderCounts(t *testing.T) {
	const spiffe = "spiffe://cluster.local/ns/shop/sa/cart"
	token, expired := "Bearer "+sign("EdDSA", "ed", edKey, good),
		"Bearer "+sign("EdDSA", "ed", edKey, with(good, object{"exp": 1}))
	source := writeKeys(t, testKeys())
	mesh := identity.Client{User: spiffe, Address: peer, By: identity.MTLS, Authenticated: true, AddressTrusted: true}
	jwt, key, mtls, ip := identity.JWT, identity.APIKey, identity.MTLS, identity.IP
	cases := map[string]struct {
		order                     []identity.EvidenceKind
		authorization, key, peers string
		want                      identity.Client
	}{
		"token first": {[]identity.EvidenceKind{jwt, key, mtls, ip}, token, "secret", spiffe, alice},
		"key first": {[]identity.EvidenceKind{key, jwt}, token, "secret", spiffe,
			keyed("ci", "ci-bot", "acme", "pro")},
		"certificate first": {[]identity.EvidenceKind{mtls, key, jwt}, token, "secret", spiffe, mesh},
		"address first":     {[]identity.EvidenceKind{ip, jwt}, token, "secret", spiffe, unknown(peer)},
		"expired token, then key": {[]identity.EvidenceKind{jwt, key, mtls, ip}, expired, "secret", spiffe,
			keyed("ci", "ci-bot", "acme", "pro")},
		"revoked key, then mtls":  {[]identity.EvidenceKind{jwt, key, mtls, ip}, expired, "revoked", spiffe, mesh},
		"nothing, then address":   {[]identity.EvidenceKind{jwt, key, mtls, ip}, expired, "revoked", "", unknown(peer)},
		"nothing, no ip in order": {[]identity.EvidenceKind{jwt, key}, expired, "revoked", spiffe, unknown(peer)},
		"not in the order":        {[]identity.EvidenceKind{key}, token, "", spiffe, unknown(peer)},
		"no order: address alone": {nil, token, "secret", spiffe, unknown(peer)},
		"a key leaves no tier":    {[]identity.EvidenceKind{key, mtls}, "", "bad", spiffe, mesh},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, _ := resolver(t, identity.Config{Order: c.order, Issuers: []identity.Issuer{issuer(source)},
				Keys: keysConfig()}, atNoon)
			got, refusal := r.Resolve(&identity.Evidence{Headers: headers("authorization", c.authorization, "x-api-key",
				c.key), Principal: c.peers, Peer: peer})
			if refusal != nil {
				t.Fatalf("refused: %s", refusal.Message)
			}
			if diff := cmp.Diff(c.want, got, compareClients); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAddressFirstOnAPipeAsksOn(t *testing.T) {
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.IP, identity.MTLS}}, atNoon)
	got, _ := r.Resolve(&identity.Evidence{Principal: "spiffe://a/b"})
	if got.User != "spiffe://a/b" || got.AddressTrusted {
		t.Errorf("client %+v, want the principal and no trusted address", got)
	}
}

func TestTheAddressIsKnownBesides(t *testing.T) {
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.MTLS},
		ClientIP: identity.AddressConfig{TrustedHops: 1}}, atNoon)
	got, _ := r.Resolve(&identity.Evidence{Principal: "spiffe://a/b",
		Headers: headers("x-forwarded-for", "203.0.113.7"), Peer: peer})
	if got.Address != netip.MustParseAddr("203.0.113.7") || !got.AddressTrusted || !got.Authenticated {
		t.Errorf("client %+v, want a principal with a trusted address", got)
	}
}

func TestWithoutKeySetsTokensYieldNothing(t *testing.T) {
	r := identity.New(identity.Config{Order: []identity.EvidenceKind{identity.JWT},
		Issuers: []identity.Issuer{issuer("/x")}},
		nil, identity.Options{})
	defer r.Close()
	got, refusal := r.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer a.b.c"), Peer: peer})
	if got != unknown(peer) || refusal != nil {
		t.Errorf("client %+v, refusal %v, want the address alone", got, refusal)
	}
	_, refusal = r.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer a", "authorization",
		"Bearer b")})
	if refusal == nil {
		t.Error("two tokens are not refused")
	}
}

func TestKindsHaveTheWordsOfTheRuleFile(t *testing.T) {
	for word, kind := range map[string]identity.EvidenceKind{"jwt": identity.JWT, "api_key": identity.APIKey,
		"mtls": identity.MTLS, "ip": identity.IP} {
		if kind.String() != word {
			t.Errorf("kind %d is written as %q, want %q", kind, kind, word)
		}
	}
	if got := identity.EvidenceKind(99).String(); got != "unknown" {
		t.Errorf("a kind that is none is written as %q", got)
	}
}
