package identity

import (
	"net/netip"
	"time"
)

// Config is how one domain identifies clients. The zero value uses the connection's peer alone.
type Config struct {
	Order    []EvidenceKind // of evidence: the first that yields an identity is taken; IP is always known besides
	Issuers  []Issuer
	Keys     KeysConfig
	ClientIP AddressConfig
}

// Issuer is one issuer of JWTs and what is accepted from it. The same issuer may be there several times: the first
// whose conditions a token meets is taken.
type Issuer struct {
	Issuer      string   // the token's iss, to the byte; an empty one accepts nothing
	JWKS        string   // of the key set: an https URL or an absolute path
	Audiences   []string // of which the token's aud must have one; none: aud is not looked at
	Algorithms  []string // of signatures that are accepted, see Algorithms; none: all of those
	UserClaim   string   // name of the claim that is the user; empty: sub
	TenantClaim string   // empty: the token names no tenant
	TierClaim   string   // empty: the token names no tier
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
	SHA256             [32]byte  // of the whole key as sent
	User, Tenant, Tier string    // an empty user is the ID
	Expires            time.Time // zero: never
	Revoked            bool
}

// AddressConfig is how the client's address is found in x-forwarded-for. At most one of its fields is given (with both,
// the proxies count); the zero value takes the connection's peer.
type AddressConfig struct {
	TrustedHops    int // the entry that counts, from the right
	TrustedProxies []netip.Prefix
}
