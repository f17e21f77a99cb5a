package manifests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// issuer signs tokens, as the issuer does that your RequestAuthentication trusts.
type issuer struct{ key *ecdsa.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return issuer{key}
}

func encoded(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// filter is what Istio makes of a RequestAuthentication: tokens are checked, requests without one pass.
func (i issuer) filter(t *testing.T) fields {
	t.Helper()
	point := must.Get(i.key.PublicKey.Bytes())(t)
	keys := fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"k","x":%q,"y":%q}]}`,
		encoded(point[1:33]), encoded(point[33:]))
	return fields{"name": "envoy.filters.http.jwt_authn", "typed_config": fields{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
		"providers": fields{"origins-0": fields{
			"issuer": "https://issuer.example", "local_jwks": fields{"inline_string": keys},
			"payload_in_metadata": "payload", "forward": true,
		}},
		"rules": []any{fields{"match": fields{"prefix": "/"},
			"requires": fields{"requires_any": fields{"requirements": []any{
				fields{"provider_name": "origins-0"}, fields{"allow_missing": fields{}},
			}}}}},
	}}
}

// request is one with a token for the subject.
func (i issuer) request(t *testing.T, subject string) request {
	t.Helper()
	text := encoded([]byte(`{"alg":"ES256","kid":"k"}`)) + "." +
		encoded(fmt.Appendf(nil, `{"iss":"https://issuer.example","sub":%q,"exp":4102444800}`, subject))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return request{"/", "authorization", "Bearer " + text + "." + encoded(signature)}
}

func TestVerifiedSubjectsHaveTheirOwnLimits(t *testing.T) {
	trusted := newIssuer(t)
	for _, name := range []string{"rls-socket.yaml", "rls-namespace.yaml"} {
		t.Run(name, func(t *testing.T) {
			w := start(t, name, trusted.filter(t))
			w.wants(t, 60, http.StatusOK, trusted.request(t, "alice"))
			w.wants(t, 1, http.StatusTooManyRequests, trusted.request(t, "alice"))
			w.wants(t, 1, http.StatusOK, trusted.request(t, "bob"))
			w.wants(t, 1, http.StatusOK, request{path: "/"})
			w.wants(t, 1, http.StatusUnauthorized, newIssuer(t).request(t, "alice"))
			w.wantsNoErrors(t)
		})
	}
}
