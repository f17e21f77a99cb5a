package integration

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/spillway-mesh/spillway/test/must"
)

// tokenFamilies are about signed tokens.
func tokenFamilies() []family {
	from := func(peer string) ask {
		return ask{domain: "tokens", method: "GET", path: "/", host: "shop.example", peer: peer}
	}
	withKey := from("{home}") // the caller's API key is of the same user, so it spends that user's limit
	withKey.headers = [][2]string{{"x-api-key", "{key}"}}
	return []family{
		{"token/same", withKey, from("{away}"), rows("per-user", sameToken())},
		{"token/claims", from("{away}"), from("{away}"), rows("per-address", badClaims())},
		{"token/signature", from("{away}"), from("{away}"), rows("per-address", badSignature())},
		{"token/shape", from("{away}"), from("{away}"), rows("per-address", badShape())},
		{"token/scheme", from("{away}"), from("{away}"), rows("per-address", otherScheme())},
		{"token/twice", withKey, from("{away}"), rows("400", tokenTwice())},
	}
}

// bearer sends a token that is made for the caller.
func bearer(token func(user string) string) func(*ask, *caller) {
	return func(a *ask, c *caller) { header("authorization", "Bearer "+token(c.id))(a, c) }
}

// authorization sends a text in which TOKEN is a good token of the caller.
func authorization(texts ...string) func(*ask, *caller) {
	return func(a *ask, c *caller) {
		for _, text := range texts {
			header("authorization", strings.ReplaceAll(text, "TOKEN", tokenOf(c.id)))(a, c)
		}
	}
}

// claiming sends a well-signed token with other claims; nil removes one.
func claiming(changes object) func(*ask, *caller) {
	return bearer(func(user string) string { return sign("ES256", "ec", ecKey(), claimsOf(user, changes)) })
}

// heading sends a token whose header has more in it.
func heading(key any, more object) func(*ask, *caller) {
	return bearer(func(user string) string {
		head := object{"alg": "ES256", "kid": "ec"}
		for name, value := range more {
			head[name] = value
		}
		return signHeader(head, "ES256", key, claimsOf(user))
	})
}

func sameToken() []change {
	return []change{
		{"as it should be", authorization("Bearer TOKEN")},
		{"lower case", authorization("bearer TOKEN")},
		{"upper case", authorization("BEARER TOKEN")},
		{"mixed case", authorization("bEaReR TOKEN")},
		{"many blanks", authorization("Bearer    TOKEN")},
		{"a tab", authorization("Bearer\tTOKEN")},
		{"blanks around", authorization(" \tBearer TOKEN \t")},
		{"RS256", bearer(func(user string) string { return sign("RS256", "rsa", rsaKey(), claimsOf(user)) })},
		{"EdDSA", bearer(func(user string) string { return sign("EdDSA", "ed", edKey(), claimsOf(user)) })},
		{"issued again",
			claiming(object{"jti": "fresh", "iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Hour).Unix()})},
		{"another session", claiming(object{"sid": "other", "nonce": "other", "plan": "free"})},
		{"several audiences", claiming(object{"aud": []string{"other", "shop"}})},
		{"without a kid", bearer(func(user string) string {
			return signHeader(object{"alg": "ES256"}, "ES256", ecKey(), claimsOf(user))
		})},
		{"jku of a stranger beside", heading(ecKey(), object{"jku": "https://evil.example/keys.json"})},
		{"an API key of another beside", func(a *ask, c *caller) {
			authorization("Bearer TOKEN")(a, c)
			header("x-api-key", "other")(a, c)
		}},
		{"another header name beside", func(a *ask, c *caller) {
			authorization("Bearer TOKEN")(a, c)
			header("proxy-authorization", "Bearer x")(a, c)
		}},
	}
}

func badClaims() []change {
	ago, ahead := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	return []change{
		{"expired", claiming(object{"exp": ago})},
		{"expired long ago", claiming(object{"exp": 1})},
		{"no expiry", claiming(object{"exp": nil})},
		{"expiry as text", claiming(object{"exp": "never"})},
		{"expiry below zero", claiming(object{"exp": -1})},
		{"expiry as a list", claiming(object{"exp": []int64{ahead}})},
		{"not yet valid", claiming(object{"nbf": ahead})},
		{"wrong audience", claiming(object{"aud": "other"})},
		{"audience in another case", claiming(object{"aud": "SHOP"})},
		{"no audience", claiming(object{"aud": nil})},
		{"empty audience", claiming(object{"aud": []string{}})},
		{"wrong issuer", claiming(object{"iss": "https://evil.example"})},
		{"issuer with a slash", claiming(object{"iss": "https://issuer.example/"})},
		{"no issuer", claiming(object{"iss": nil})},
		{"issuer as a list", claiming(object{"iss": []string{"https://issuer.example"}})},
		{"no user", claiming(object{"sub": nil})},
		{"empty user", claiming(object{"sub": ""})},
		{"user as an object", claiming(object{"sub": object{"id": "x"}})},
		{"user as a list", claiming(object{"sub": []string{"x"}})},
		{"user as truth", claiming(object{"sub": true})},
		{"user under another case", claiming(object{"sub": nil, "SUB": "x"})},
		{"user with bytes that JSON cannot carry", claiming(object{"sub": "\ufffd"})},
	}
}

// confused signs with a shared secret that everybody knows: the public key.
func confused(secret func() []byte, kid string) func(*ask, *caller) {
	return bearer(func(user string) string { return sign("HS256", kid, secret(), claimsOf(user)) })
}

func rsaPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaDER()})
}

func rsaDER() []byte { return must.Value(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)) }

func badSignature() []change {
	unsigned := func(alg string) func(*ask, *caller) {
		return bearer(func(user string) string {
			header, claims := must.Value(json.Marshal(object{"alg": alg})), must.Value(json.Marshal(claimsOf(user)))
			return b64(header) + "." + b64(claims) + "."
		})
	}
	stranger := publicJWK("ec", &wrongKey().PublicKey)
	return []change{
		{"none", unsigned("none")},
		{"None", unsigned("None")},
		{"nOnE", unsigned("nOnE")},
		{"no algorithm", unsigned("")},
		{"none with a signature", bearer(func(user string) string {
			return sign("none", "ec", jwt.UnsafeAllowNoneSignatureType, claimsOf(user)) + "AAAA"
		})},
		{"HS256 with the PEM", confused(rsaPEM, "rsa")},
		{"HS256 with the DER", confused(rsaDER, "rsa")},
		{"HS256 with the modulus", confused(func() []byte { return rsaKey().N.Bytes() }, "rsa")},
		{"HS256 with the key set", confused(func() []byte { return []byte(keySet()) }, "ec")},
		{"HS256 with nothing", confused(func() []byte { return []byte{} }, "ec")},
		{"key of a stranger", bearer(func(user string) string {
			return sign("ES256", "ec", wrongKey(), claimsOf(user))
		})},
		{"key of another family", bearer(func(user string) string {
			return sign("RS256", "ec", rsaKey(), claimsOf(user))
		})},
		{"algorithm that is not listed", bearer(func(user string) string {
			return sign("RS512", "rsa", rsaKey(), claimsOf(user))
		})},
		{"PS256", bearer(func(user string) string { return sign("PS256", "rsa", rsaKey(), claimsOf(user)) })},
		{"algorithm in lower case", bearer(func(user string) string {
			return signHeader(object{"alg": "es256", "kid": "ec"}, "ES256", ecKey(), claimsOf(user))
		})},
		{"all zeros", bearer(func(user string) string { return cutSignature(tokenOf(user)) + b64(make([]byte, 64)) })},
		{"cut", bearer(func(user string) string { token := tokenOf(user); return token[:len(token)-4] })},
		{"empty", bearer(func(user string) string { return cutSignature(tokenOf(user)) })},
		{"of another token", bearer(func(user string) string {
			other := tokenOf("other")
			return cutSignature(tokenOf(user)) + other[strings.LastIndexByte(other, '.')+1:]
		})},
		{"jwk in the header", heading(wrongKey(), object{"jwk": stranger})},
		{"jku in the header", heading(wrongKey(), object{"jku": "https://evil.example/keys.json", "kid": "evil"})},
		{"x5u in the header", heading(wrongKey(), object{"x5u": "https://evil.example/cert.pem"})},
		{"x5c in the header", heading(wrongKey(), object{"x5c": []string{"MIIB"}})},
		{"unknown kid", heading(ecKey(), object{"kid": "unknown"})},
		{"kid as a path", heading(wrongKey(), object{"kid": "../../../../dev/null"})},
		{"kid as a query", heading(wrongKey(), object{"kid": "ec' OR '1'='1"})},
		{"kid as a number", heading(ecKey(), object{"kid": 1})},
		{"kid as a list", heading(ecKey(), object{"kid": []string{"ec"}})},
		{"something critical", heading(ecKey(), object{"crit": []string{"exp"}, "exp": 1})},
		{"payload not encoded", heading(ecKey(), object{"crit": []string{"b64"}, "b64": false})},
	}
}

// cutSignature is a token up to its last dot.
func cutSignature(token string) string { return token[:strings.LastIndexByte(token, '.')+1] }

func badShape() []change {
	reshaped := func(change func(token string) string) func(*ask, *caller) {
		return bearer(func(user string) string { return change(tokenOf(user)) })
	}
	return []change{
		{"two parts", reshaped(func(token string) string { return token[:strings.LastIndexByte(token, '.')] })},
		{"four parts", reshaped(func(token string) string { return token + ".x" })},
		{"encrypted, five parts", reshaped(func(string) string {
			return b64([]byte(`{"alg":"dir","enc":"A256GCM"}`)) + "..AAAA.AAAA.AAAA"
		})},
		{"dots alone", reshaped(func(string) string { return ".." })},
		{"a thousand dots", reshaped(func(string) string { return strings.Repeat(".", 1000) })},
		{"dot before", reshaped(func(token string) string { return "." + token })},
		{"padded", reshaped(func(token string) string { return token + "==" })},
		{"blank inside", reshaped(func(token string) string { return strings.Replace(token, ".", ". ", 1) })},
		{"line break inside", reshaped(func(token string) string { return strings.Replace(token, ".", "\n.", 1) })},
		{"in quotes", reshaped(func(token string) string { return `"` + token + `"` })},
		{"not base64", reshaped(func(token string) string { return "%%%" + token })},
		{"not UTF-8", reshaped(func(token string) string { return token + "\xff" })},
		{"NUL behind", reshaped(func(token string) string { return token + "\x00" })},
		{"header is no object", reshaped(func(token string) string {
			return b64([]byte(`["ES256"]`)) + token[strings.IndexByte(token, '.'):]
		})},
		{"header is null", reshaped(func(token string) string {
			return b64([]byte(`null`)) + token[strings.IndexByte(token, '.'):]
		})},
		{"ALG in upper case", reshaped(func(token string) string {
			return b64([]byte(`{"ALG":"ES256"}`)) + token[strings.IndexByte(token, '.'):]
		})},
		{"claims are no object", bearer(func(string) string {
			text := b64([]byte(`{"alg":"ES256","kid":"ec"}`)) + "." + b64([]byte(`[]`))
			return text + "." + b64(must.Value(jwt.GetSigningMethod("ES256").Sign(text, ecKey())))
		})},
		{"deep claims", bearer(func(string) string {
			text := b64([]byte(`{"alg":"ES256","kid":"ec"}`)) + "." + b64([]byte(strings.Repeat("[", 5000)))
			return text + "." + b64(must.Value(jwt.GetSigningMethod("ES256").Sign(text, ecKey())))
		})},
	}
}

func otherScheme() []change {
	return []change{
		{"Basic", authorization("Basic dXNlcjpwYXNz")},
		{"Basic in front of the token", authorization("Basic TOKEN")},
		{"Digest with commas", authorization(`Digest username="x", realm="y", nonce="z"`)},
		{"the token alone", authorization("TOKEN")},
		{"Bearer alone", authorization("Bearer")},
		{"Bearer and blanks", authorization("Bearer   ")},
		{"no blank", authorization("BearerTOKEN")},
		{"a colon", authorization("Bearer:TOKEN")},
		{"another word before", authorization("x Bearer TOKEN")},
		{"DPoP", authorization("DPoP TOKEN")},
		{"empty", authorization("")},
		{"other schemes twice", authorization("Basic a", "Basic b")},
		{"in the query", bearerIn("/?access_token=TOKEN")},
		{"in proxy-authorization", func(a *ask, c *caller) {
			header("proxy-authorization", "Bearer "+tokenOf(c.id))(a, c)
		}},
		{"in a cookie", func(a *ask, c *caller) { header("cookie", "authorization=Bearer "+tokenOf(c.id))(a, c) }},
	}
}

// bearerIn sends the token in the path.
func bearerIn(p string) func(*ask, *caller) {
	return func(a *ask, c *caller) { a.path = strings.ReplaceAll(p, "TOKEN", tokenOf(c.id)) }
}

func tokenTwice() []change {
	return []change{
		{"the same", authorization("Bearer TOKEN", "Bearer TOKEN")},
		{"another behind", authorization("Bearer TOKEN", "Bearer x")},
		{"another before", authorization("Bearer x", "Bearer TOKEN")},
		{"Basic behind", authorization("Bearer TOKEN", "Basic x")},
		{"Basic before", authorization("Basic x", "Bearer TOKEN")},
		{"joined by a comma", authorization("Bearer TOKEN,Bearer TOKEN")},
		{"joined to Basic", authorization("Basic x, Bearer TOKEN")},
		{"joined in another case", authorization("Basic x,bearer TOKEN")},
		{"comma behind", authorization("Bearer TOKEN,")},
		{"comma before", authorization(",Bearer TOKEN")},
		{"an empty one behind", authorization("Bearer TOKEN", "")},
		{"a hundred", authorization(strings.Split(strings.Repeat("Bearer TOKEN|", 100), "|")[:100]...)},
		{"8 KiB and more", authorization("Bearer " + strings.Repeat("t", 8<<10))},
		{"8 KiB and more of dots", authorization("Bearer " + strings.Repeat(".", 8<<10))},
		{"60 KiB", authorization("Bearer TOKEN" + strings.Repeat("t", 60<<10))},
	}
}
