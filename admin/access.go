package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
)

// Role is what a caller of the API may do. The zero value may do nothing.
type Role uint8

// The roles. Each may do what those before it may.
const (
	NoRole  Role = iota
	View         // read
	Operate      // and change
)

var roleWords = [...]string{"none", "view", "operate"}

// String is the word of the role.
func (r Role) String() string { return roleWords[min(int(r), len(roleWords)-1)] }

// ParseRole reads a word, and reports whether it is a role.
func ParseRole(word string) (Role, bool) {
	at := slices.Index(roleWords[1:], strings.ToLower(word))
	return Role(at + 1), at >= 0
}

// Caller is who uses the API.
type Caller struct {
	Name string // for the log
	Role Role
}

// Access decides who may use the API. The zero value lets this machine do nothing, and other machines neither.
type Access struct {
	Tokens    func() []Token // who is known by a token; nil: tokens are not looked at
	Local     Role           // of this machine, where there are neither tokens nor certificates
	Certified bool           // clients with a certificate that was verified may view
	Operators []string       // names in certificates whose clients may operate
}

// Token is one who is known by a token.
type Token struct {
	Caller
	Digest [sha256.Size]byte // of the token
}

// caller returns who sends a request, or the problem with it.
func (a *Access) caller(r *http.Request) (Caller, *Problem) {
	if a.Tokens == nil && !a.Certified {
		return a.local(r)
	}
	if a.Certified && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.certified(r), nil
	}
	token, given := Bearer(r)
	if a.Tokens != nil && given {
		if c, known := find(a.Tokens(), strings.TrimSpace(token)); known {
			return c, nil
		}
	}
	return Caller{}, problem(http.StatusUnauthorized, "the API needs %s", a.needs())
}

// needs is what a caller has to bring.
func (a *Access) needs() string {
	switch {
	case a.Tokens == nil:
		return "a client certificate that ADMIN_TLS_CLIENT_CA has signed"
	case a.Certified:
		return "a client certificate, or the header authorization: Bearer with a token of ADMIN_TOKEN_FILE"
	}
	return "the header authorization: Bearer with a token of ADMIN_TOKEN_FILE"
}

// local lets this machine in. The name that it was asked under must be of this machine too: a page in a browser may make its own name
// lead here.
func (a *Access) local(r *http.Request) (Caller, *Problem) {
	if !fromHere(r.RemoteAddr) {
		return Caller{}, problem(http.StatusForbidden, "without ADMIN_TOKEN_FILE or ADMIN_TLS_CLIENT_CA the API answers this machine only: ask 127.0.0.1, or forward the port")
	}
	if !ownName(r.Host, nil) {
		const wrong = "the API was asked under the name %q: use localhost or an address"
		return Caller{}, problem(http.StatusForbidden, wrong, r.Host)
	}
	return Caller{"local", a.Local}, nil
}

// certified is the client of a certificate.
func (a *Access) certified(r *http.Request) Caller {
	leaf := r.TLS.VerifiedChains[0][0]
	names := slices.Clone(leaf.DNSNames)
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	for _, name := range names {
		if slices.Contains(a.Operators, name) {
			return Caller{name, Operate}
		}
	}
	if len(names) > 0 {
		return Caller{names[0], View}
	}
	return Caller{leaf.Subject.CommonName, View}
}

// find returns whose token it is. All are compared, so that the time tells nothing.
func find(tokens []Token, token string) (found Caller, known bool) {
	digest := sha256.Sum256([]byte(token))
	for i := range tokens {
		if subtle.ConstantTimeCompare(tokens[i].Digest[:], digest[:]) == 1 {
			found, known = tokens[i].Caller, true
		}
	}
	return found, known
}

// Bearer returns the token that a request brings, and whether it brings one. The case of the scheme does not count.
func Bearer(r *http.Request) (token string, given bool) {
	const scheme = "Bearer "
	text := r.Header.Get("Authorization")
	if len(text) < len(scheme) || !strings.EqualFold(text[:len(scheme)], scheme) {
		return "", false
	}
	return text[len(scheme):], true
}
