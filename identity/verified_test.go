package identity

import (
	"net/netip"
	"testing"
)

// TestVerifiedClientStands: a client that was established elsewhere is kept, and the address is found as for any other.
func TestVerifiedClientStands(t *testing.T) {
	r := New(Config{Order: []EvidenceKind{APIKey, IP}, Keys: KeysConfig{Header: "x-api-key"},
		ClientIP: AddressConfig{TrustedHops: 1}}, nil, Options{})
	known := &Client{User: "alice", Tenant: "acme", Tier: "gold", By: JWT, Authenticated: true}
	got, refusal := r.Resolve(&Evidence{
		Verified: known, Peer: netip.MustParseAddr("10.0.0.1"), Headers: []Header{{"x-forwarded-for", "192.0.2.7"},
			{"x-api-key", "a"}, {"x-api-key", "b"}},
	})
	want := *known
	want.Address, want.AddressTrusted = netip.MustParseAddr("192.0.2.7"), true
	if got != want || refusal != nil {
		t.Errorf("resolved to %+v and %v, want %+v", got, refusal, want)
	}
	if known.Address.IsValid() {
		t.Error("what was handed in was changed")
	}
}
