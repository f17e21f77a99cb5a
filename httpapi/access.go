package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
)

// Role is what a caller of an API may do. The zero value may do nothing.
type Role uint8

// The roles. Each may do what those before it may.
const (
	NoRole     Role = iota
	View            // read
	Operate         // and change
	Administer      // and change what concerns all
)

// Roles are the words of the roles of an API, from View on.
type Roles []string

// Word is the word of a role.
func (r Roles) Word(role Role) string {
	if role == NoRole || int(role) > len(r) {
		return "none"
	}
	return r[role-1]
}

// Parse reads a word; NoRole: it is the word of none.
func (r Roles) Parse(word string) Role { return Role(slices.Index(r, strings.ToLower(word)) + 1) }

// Caller is who uses an API.
type Caller struct {
	Name    string
	Role    Role
	Domains []string // that it may use; nil: all
	From    string   // the address
}

// May reports whether the caller may use a domain; the empty one means all.
func (c Caller) May(domain string) bool {
	return c.Domains == nil || slices.Contains(c.Domains, domain)
}

// Refuse is the problem of a caller that may not use a domain.
func (c Caller) Refuse(what string) *Problem {
	all := strings.Join(c.Domains, ", ")
	return NewProblem(http.StatusForbidden, "%s may use the domains %s alone, and this is about %s", c.Name, all, what)
}

// Access decides who may use an API. Without tokens and certificates it is this machine alone. The zero value
// refuses every change and every read.
type Access struct {
	Roles     Roles
	Tokens    func() []Token // who is known by a token; nil: tokens are not looked at
	Certified bool           // clients with a certificate that was verified may view
	Operators []string       // names in certificates whose clients may operate
	Local     Role           // of this machine
	TokenFile string         // the variable that names the file of tokens
	ClientCA  string         // the variable that names who signs certificates; empty: it does not exist
}

// Token is one who is known by a token.
type Token struct {
	Caller
	Digest [sha256.Size]byte // SHA-256 of the token
}

// lacks returns why a caller may not do what needs a role, or nil.
func (a *Access) lacks(c Caller, role Role) *Problem {
	if c.Role >= role {
		return nil
	}
	return NewProblem(http.StatusForbidden, "%s has the role %s, and this needs the role %s",
		c.Name, a.Roles.Word(c.Role), a.Roles.Word(role))
}

// caller returns who sends a request, or the problem with it.
func (a *Access) caller(r *http.Request) (Caller, *Problem) {
	if a.Tokens == nil && !a.Certified {
		return a.local(r)
	}
	if a.Certified && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.certified(r), nil
	}
	token, given := bearer(r)
	if a.Tokens != nil && given {
		if c, known := find(a.Tokens(), strings.TrimSpace(token)); known {
			c.From = r.RemoteAddr
			return c, nil
		}
	}
	return Caller{}, NewProblem(http.StatusUnauthorized, "the API needs %s", a.needs())
}

// needs is what a caller has to bring.
func (a *Access) needs() string {
	token := "the header authorization: Bearer with a token of " + a.TokenFile
	switch {
	case a.Tokens == nil:
		return "a client certificate that " + a.ClientCA + " has signed"
	case a.Certified:
		return "a client certificate, or " + token
	}
	return token
}

// local lets this machine in. The name that it was asked under must be of this machine too: a page in a browser may
// make its own name lead here.
func (a *Access) local(r *http.Request) (Caller, *Problem) {
	variables := a.TokenFile
	if a.ClientCA != "" {
		variables += " or " + a.ClientCA
	}
	switch {
	case !FromHere(r.RemoteAddr):
		return Caller{}, NewProblem(http.StatusForbidden,
			"without %s the API answers this machine only: ask 127.0.0.1, or forward the port", variables)
	case !ownName(r.Host, nil):
		return Caller{}, NewProblem(http.StatusForbidden,
			"the API was asked under the name %q: use localhost or an address, or set %s", r.Host, variables)
	}
	return Caller{Name: "local", Role: a.Local, From: r.RemoteAddr}, nil
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
			return Caller{Name: name, Role: Operate, From: r.RemoteAddr}
		}
	}
	names = append(names, leaf.Subject.CommonName)
	return Caller{Name: names[0], Role: View, From: r.RemoteAddr}
}

// find returns whose token it is. All are compared, so that the time depends on none.
func find(tokens []Token, token string) (found Caller, known bool) {
	digest := sha256.Sum256([]byte(token))
	for i := range tokens {
		if subtle.ConstantTimeCompare(tokens[i].Digest[:], digest[:]) == 1 {
			found, known = tokens[i].Caller, true
		}
	}
	return found, known
}

// bearer returns the token that a request brings, and whether it brings one. The case of the scheme does not count.
func bearer(r *http.Request) (token string, given bool) {
	const scheme = "Bearer "
	text := r.Header.Get("Authorization")
	if len(text) < len(scheme) || !strings.EqualFold(text[:len(scheme)], scheme) {
		return "", false
	}
	return text[len(scheme):], true
}
