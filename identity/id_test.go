package identity_test

import (
	"testing"

	"github.com/spillway-mesh/spillway/identity"
)

func TestWordsOfIdentities(t *testing.T) {
	for kind, word := range map[identity.Kind]string{
		identity.UserID: "user", identity.TenantID: "tenant", identity.APIKeyID: "api_key", identity.AddressID: "ip",
	} {
		got, ok := identity.ParseKind(word)
		if !ok || got != kind || kind.String() != word {
			t.Errorf("%q is the kind %v (%v), want %v", word, got, ok, kind)
		}
	}
	if got, ok := identity.ParseKind("person"); ok {
		t.Errorf("an unknown word is the kind %v", got)
	}
	if got := identity.Kind(99).String(); got != "unknown" {
		t.Errorf("an unknown kind is called %q", got)
	}
	if got := (identity.ID{Kind: identity.TenantID, Name: "acme"}).String(); got != "tenant acme" {
		t.Errorf("the identity is called %q", got)
	}
}
