package integration

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/spillway-mesh/spillway/test/must"
)

// object is a JSON object: a key, a header or claims.
type object = map[string]any

// The signers of the tests, made anew for each run.
var (
	edKey = sync.OnceValue(func() ed25519.PrivateKey {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return must.Value(key, err)
	})
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must.Value(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(newECKey)
	wrongKey = sync.OnceValue(newECKey)
)

func newECKey() *ecdsa.PrivateKey { return must.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// publicJWK is a public key in the form that key sets hold.
func publicJWK(kid string, key crypto.PublicKey) object {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return object{"kty": "RSA", "kid": kid, "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}
	case *ecdsa.PublicKey:
		point := must.Value(key.Bytes())[1:]
		return object{"kty": "EC", "kid": kid, "crv": "P-256", "x": b64(point[:32]), "y": b64(point[32:])}
	case ed25519.PublicKey:
		return object{"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": b64(key)}
	}
	panic("no such key")
}

// keySet is the issuer's key set.
func keySet() string {
	return string(must.Value(json.Marshal(object{"keys": []object{
		publicJWK("rsa", &rsaKey().PublicKey), publicJWK("ec", &ecKey().PublicKey), publicJWK("ed", edKey().Public()),
	}})))
}

// claimsOf are the claims of a good token of a user.
func claimsOf(user string, changes ...object) object {
	claims := object{
		"iss": "https://issuer.example", "aud": "shop", "sub": user, "org_id": "acme", "plan": "pro",
		"exp": time.Now().Add(time.Hour).Unix(), "nbf": time.Now().Add(-time.Minute).Unix(),
	}
	for _, change := range changes {
		maps.Copy(claims, change)
	}
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// sign makes a token.
func sign(alg, kid string, key any, claims object) string {
	return signHeader(object{"alg": alg, "kid": kid, "typ": "JWT"}, alg, key, claims)
}

// signHeader makes a token with any header.
func signHeader(header object, alg string, key any, claims object) string {
	text := b64(must.Value(json.Marshal(header))) + "." + b64(must.Value(json.Marshal(claims)))
	return text + "." + b64(must.Value(jwt.GetSigningMethod(alg).Sign(text, key)))
}

// tokenOf is a good token of a user.
func tokenOf(user string) string { return sign("ES256", "ec", ecKey(), claimsOf(user)) }
