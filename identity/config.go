package identity

import (
	"net/netip"
	"time"
)

// Config is how one domain tells clients apart. The zero value asks the connection's peer alone.
type Config struct {
	Order    []Kind // of evidence: the first that yields an identity is taken; IP is always known besides
	Issuers  []Issuer
	Keys     KeysConfig
	ClientIP AddressConfig
}

// Issuer is one issuer of JWTs and what is accepted from it.
type Issuer struct {
	Issuer      string   // the token's iss
	JWKS        string   // of the key set: an https URL or an absolute path
	Audiences   []string // of which the token's aud must have one; none: any
	Algorithms  []string // of signatures that are accepted
	UserClaim   string   // names of claims; empty: the token does not say
	TenantClaim string
	TierClaim   string
}

// KeysConfig is where API keys are sent and which there are.
type KeysConfig struct {
	Header string // name in lower case; one of Header and Query is given
	Query  string // name of the parameter
	Keys   []Key
}

// Key is one API key, of which only the digest is known.
type Key struct {
	ID                 string
	SHA256             [32]byte // of the whole key as sent
	User, Tenant, Tier string
	Expires            time.Time // zero: never
	Revoked            bool
}

// AddressConfig is how the client's address is found in x-forwarded-for. At most one of its fields is given; the zero
// value takes the connection's peer.
type AddressConfig struct {
	TrustedHops    int // the entry that counts, from the right
	TrustedProxies []netip.Prefix
}
