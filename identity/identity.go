// Package identity finds who is asking: from a JWT, an API key or a trusted client address to a Client.
package identity

import (
	"net/netip"
)

// EvidenceKind is a kind of evidence.
type EvidenceKind uint8

// The kinds of evidence.
const (
	IP EvidenceKind = iota // the client's address, which is always known besides
	JWT
	APIKey
	MTLS
)

// kinds are the words of a rule file for the kinds of evidence.
var kinds = [...]string{IP: "ip", JWT: "jwt", APIKey: "api_key", MTLS: "mtls"}

// String is the kind's word in a rule file.
func (k EvidenceKind) String() string {
	if int(k) >= len(kinds) {
		return "unknown"
	}
	return kinds[k]
}

// Header is one header of a request as it came; a name that was sent twice is there twice.
type Header struct{ Name, Value string }

// Evidence is what a request brings to identify who is asking. Its strings may hold any bytes.
type Evidence struct {
	Headers   []Header   // names in lower case
	Path      string     // with its query, as it came
	Principal string     // of the peer's certificate, empty without one
	Peer      netip.Addr // the connection's other end; invalid for a pipe
	// who asks, where that was established elsewhere, as by a log; only the address is resolved then. Doors leave it
	// nil
	Verified *Client
}

// Client is who is asking.
type Client struct {
	User, Tenant, Tier string       // empty: not known
	Key                string       // id of the API key that was used, whose own limits apply
	Address            netip.Addr   // of the client, unmapped; invalid when not even the peer's is known
	By                 EvidenceKind // the evidence that named the client
	Authenticated      bool         // that evidence was verified
	AddressTrusted     bool         // Address comes from the peer or from proxies that are trusted
}

// Refusal is the answer to a request whose evidence contradicts itself.
type Refusal struct {
	Status  int
	Message string
}
