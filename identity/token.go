package identity

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// leeway is by how much the clocks of an issuer and of this machine may differ.
const leeway = 30 * time.Second

// families are the algorithms that may sign a token, each with the one kind of key that fits it. Shared secrets and
// `none` are not among them and cannot be configured: with public keys, every reader of them could sign.
var families = map[string]string{
	"RS256": "RSA", "RS384": "RSA", "RS512": "RSA",
	"ES256": "P-256", "ES384": "P-384", "ES512": "P-521",
	"EdDSA": "Ed25519",
}

// Algorithms lists the signature algorithms that an Issuer may name. Others in its list are ignored.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// Why a token yields nothing. Callers learn only that it does.
var (
	errMalformed  = errors.New("identity: no signed token")
	errAlgorithm  = errors.New("identity: algorithm not accepted")
	errIssuer     = errors.New("identity: unknown issuer")
	errNoUser     = errors.New("identity: no user claim")
	errUnknownKey = errors.New("identity: unknown key")
	errSignature  = errors.New("identity: wrong signature")
)

// token is a token taken apart, nothing of it verified.
type token struct {
	signed    string // what the signature is about
	signature []byte
	alg, kid  string
	claims    jwt.MapClaims
	encoded   string // the claims as they came
}

// parseToken takes a token of three parts apart. Encrypted ones have five. References to keys in the header (jku, x5u,
// jwk, x5c) are never looked at.
func parseToken(text string) (token, error) {
	if len(text) > maxCredential {
		return token{}, errMalformed
	}
	signed := text[:max(strings.LastIndexByte(text, '.'), 0)]
	header, claims, two := strings.Cut(signed, ".")
	if !two || strings.IndexByte(claims, '.') >= 0 {
		return token{}, errMalformed
	}
	t := token{signed: signed, encoded: claims}
	var ok bool
	t.signature, ok = decodePart(text[len(signed)+1:])
	if !ok || !t.readHeader(header) {
		return token{}, errMalformed
	}
	t.claims, ok = decodeObject(claims)
	if !ok {
		return token{}, errMalformed
	}
	return t, nil
}

// readHeader reads the part of a token about its signature. An extension that must be understood (crit) is not
// understood.
func (t *token) readHeader(part string) bool {
	header, ok := decodeObject(part)
	if !ok {
		return false
	}
	if _, critical := header["crit"]; critical {
		return false
	}
	t.alg, ok = header["alg"].(string)
	if !ok {
		return false
	}
	kid, given := header["kid"]
	t.kid, ok = kid.(string)
	return ok || !given
}

// decodeObject reads a part that is a JSON object. Names are compared to the byte, as the standard asks, so it goes
// into a map: into a struct, `ALG` would count as alg.
func decodeObject(part string) (map[string]any, bool) {
	raw, ok := decodePart(part)
	if !ok {
		return nil, false
	}
	var value any // into a map, it would be read by reflection
	err := json.Unmarshal(raw, &value)
	object, ok := value.(map[string]any)
	return object, err == nil && ok
}

// strictBase64 accepts one spelling of each part: others would be other tokens to the cache.
var strictBase64 = base64.RawURLEncoding.Strict()

func decodePart(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") { // which the decoder would skip
		return nil, false
	}
	raw, err := strictBase64.DecodeString(part)
	return raw, err == nil
}

// verify decides about a token that is not remembered. How long it may be is part of the grant.
func (r *Resolver) verify(text string, now time.Time) grant {
	t, err := parseToken(text)
	if err != nil {
		return rejected(grant{}, err, now)
	}
	iss, _ := t.claims["iss"].(string)
	first, why, several := grant{}, errIssuer, false
	for _, i := range r.issuers[iss] {
		g, err := i.verify(&t, now)
		if err == nil {
			return g
		}
		several = several || g.set != nil && first.set != nil && g.set != first.set
		if first.set == nil { // what keys have decided ends when they change
			first, why = g, err
		}
	}
	if several {
		return grant{} // the keys of several sets have decided; it is not remembered, since it ends with each of them
	}
	return rejected(first, why, now)
}

// rejected is the grant of a token that yields nothing. It is remembered, since clients repeat themselves, unless it is
// about to become good.
func rejected(g grant, why error, now time.Time) grant {
	g = grant{set: g.set, generation: g.generation}
	if !errors.Is(why, jwt.ErrTokenNotValidYet) {
		g.expires = now.Add(rememberRejected).UnixNano()
	}
	return g
}

// issuer checks the tokens of one issuer.
type issuer struct {
	methods            map[string]jwt.SigningMethod
	validator          *jwt.Validator
	user, tenant, tier string // names of claims
	set                *keySet
}

func newIssuer(cfg Issuer, set *keySet, now func() time.Time) *issuer {
	i := &issuer{methods: map[string]jwt.SigningMethod{}, user: cfg.UserClaim, tenant: cfg.TenantClaim,
		tier: cfg.TierClaim, set: set}
	if i.user == "" {
		i.user = "sub"
	}
	algorithms := cfg.Algorithms
	if len(algorithms) == 0 {
		algorithms = Algorithms()
	}
	for _, name := range algorithms {
		if families[name] != "" {
			i.methods[name] = jwt.GetSigningMethod(name)
		}
	}
	i.validator = jwt.NewValidator(jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(slices.Clone(cfg.Audiences)...),
		jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(now))
	return i
}

// verify verifies a token: what costs nothing first, the signature last. With an error, the grant names the issuer
// whose keys decided.
func (i *issuer) verify(t *token, now time.Time) (grant, error) {
	method := i.methods[t.alg]
	if method == nil {
		return grant{}, errAlgorithm
	}
	err := i.validator.Validate(t.claims)
	if err != nil {
		return grant{}, err
	}
	g := grant{user: t.text(i.user)}
	if g.user == "" {
		return grant{}, errNoUser
	}
	g.tenant, g.tier = t.text(i.tenant), t.text(i.tier)
	g.set = i.set
	keys := i.set.current.Load()
	g.generation = keys.generation
	g.expires = remembered(t.claims, now)
	return g, i.verifySignature(t, method, keys)
}

// verifySignature tries the keys that fit. A key that is not there is asked for in the background: this request is
// decided without it.
func (i *issuer) verifySignature(t *token, method jwt.SigningMethod, keys *keys) error {
	candidates, known := keys.keysFor(t.kid, t.alg)
	if !known {
		i.set.want()
	}
	err := errUnknownKey
	for _, key := range candidates {
		if !key.fits(t.alg) {
			continue
		}
		if method.Verify(t.signed, t.signature, key.public) == nil {
			return nil
		}
		err = errSignature
	}
	return err
}

// remembered is until when a verified token is.
func remembered(claims jwt.MapClaims, now time.Time) int64 {
	until := now.Add(rememberVerified)
	exp, err := claims.GetExpirationTime()
	if err == nil && exp != nil && exp.Add(leeway).Before(until) {
		until = exp.Add(leeway)
	}
	return until.UnixNano()
}

// text is a claim as an identity: a text, or a number in its own digits. Anything else is "", as is a text with bytes
// that are not UTF-8: JSON replaced them, and all such would be one user. No name, no claim.
func (t *token) text(name string) string {
	if name == "" {
		return ""
	}
	switch claim := t.claims[name].(type) {
	case string:
		if strings.ContainsRune(claim, utf8.RuneError) {
			return ""
		}
		return claim
	case float64:
		return t.number(name)
	}
	return ""
}

// number is a claim that is a number, to the digit. Few issuers have such, so the claims are read once more for it.
func (t *token) number(name string) string {
	raw, ok := decodePart(t.encoded)
	if !ok {
		return ""
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(raw, &object)
	if err != nil {
		return ""
	}
	return string(object[name])
}
