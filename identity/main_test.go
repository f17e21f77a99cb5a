package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the moment of all tests that do not move time.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func atNoon() time.Time { return noon }

// The test's signers. The Ed25519 key is always the same, so that tokens can be in the corpora of fuzz targets.
var (
	edKey   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte("s"), ed25519.SeedSize))
	rsaKey  = sync.OnceValue(func() *rsa.PrivateKey { return must.Value(rsa.GenerateKey(rand.Reader, 2048)) })
	p256Key = sync.OnceValue(func() *ecdsa.PrivateKey {
		return must.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	})
	p384Key = sync.OnceValue(func() *ecdsa.PrivateKey {
		return must.Value(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	})
	otherRSA = sync.OnceValue(func() *rsa.PrivateKey { return must.Value(rsa.GenerateKey(rand.Reader, 2048)) })
)

// object is a JSON object: a key, a header or claims.
type object = map[string]any

// with is an object with some members replaced; nil removes one.
func with(o, changes object) object {
	all := object{}
	for k, v := range o {
		all[k] = v
	}
	for k, v := range changes {
		all[k] = v
		if v == nil {
			delete(all, k)
		}
	}
	return all
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// publicJWK is the public key in the form that key sets hold.
func publicJWK(kid string, key crypto.PublicKey) object {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return object{"kty": "RSA", "kid": kid, "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}
	case *ecdsa.PublicKey:
		point := must.Value(key.Bytes())[1:]
		half := len(point) / 2
		return object{"kty": "EC", "kid": kid, "crv": key.Params().Name, "x": b64(point[:half]), "y": b64(point[half:])}
	case ed25519.PublicKey:
		return object{"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": b64(key)}
	}
	panic("no such key")
}

// keySet is the document of a key set.
func keySet(keys ...object) []byte {
	return must.Value(json.Marshal(object{"keys": append([]object{}, keys...)}))
}

// testKeys is the key set of the test's issuer.
func testKeys() []byte {
	return keySet(publicJWK("ed", edKey.Public()), publicJWK("rsa", &rsaKey().PublicKey),
		publicJWK("p256", &p256Key().PublicKey), publicJWK("p384", &p384Key().PublicKey))
}

func writeKeys(t testing.TB, document []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	must.Do(t, os.WriteFile(path, document, 0o600))
	return path
}

// good are the claims of a token that is accepted.
var good = object{"iss": "https://issuer.example", "aud": "shop", "sub": "alice", "org_id": "acme", "plan": "pro",
	"exp": noon.Add(time.Hour).Unix()}

// sign makes a token.
func sign(alg, kid string, key any, claims object) string {
	return signHeader(object{"alg": alg, "kid": kid}, key, claims)
}

// signHeader makes a token with this header.
func signHeader(header object, key any, claims object) string {
	if header["kid"] == "" {
		delete(header, "kid")
	}
	text := b64(must.Value(json.Marshal(header))) + "." + b64(must.Value(json.Marshal(claims)))
	return signText(header["alg"].(string), key, text)
}

func signText(alg string, key any, text string) string {
	return text + "." + b64(must.Value(jwt.GetSigningMethod(alg).Sign(text, key)))
}

// issuer is the issuer that the tests trust, with its keys at a source.
func issuer(source string) identity.Issuer {
	return identity.Issuer{
		Issuer: "https://issuer.example", JWKS: source, Audiences: []string{"other", "shop"},
		Algorithms: []string{"RS256", "ES256", "EdDSA", "HS256", "none"}, TenantClaim: "org_id", TierClaim: "plan",
	}
}

// resolver makes a Resolver of a configuration whose issuers' keys are in files.
func resolver(t testing.TB, cfg identity.Config, now func() time.Time) (*identity.Resolver, *identity.KeySets) {
	t.Helper()
	sets := identity.NewKeySets(identity.KeySetsConfig{})
	t.Cleanup(sets.Close)
	r := identity.New(cfg, sets, identity.Options{Now: now})
	t.Cleanup(r.Close)
	return r, sets
}

var peer = netip.MustParseAddr("192.0.2.1")

// headers makes headers of name, value, name, value.
func headers(pairs ...string) []identity.Header {
	var all []identity.Header
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, identity.Header{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// unknown is the client of whom nothing but the address is known.
func unknown(address netip.Addr) identity.Client {
	return identity.Client{Address: address, AddressTrusted: address.IsValid()}
}

// newRSA makes an RSA key of any length.
func newRSA(bits int) (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, bits) }

// benchmarkSignature measures the check of a token's signature alone.
func benchmarkSignature(b *testing.B, alg string, key any, token string) {
	dot := strings.LastIndexByte(token, '.')
	signature := must.Value(base64.RawURLEncoding.DecodeString(token[dot+1:]))
	public := key.(crypto.Signer).Public()
	for b.Loop() {
		err := jwt.GetSigningMethod(alg).Verify(token[:dot], signature, public)
		if err != nil {
			b.Fatal(err)
		}
	}
}
