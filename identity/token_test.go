package identity_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
)

var compareClients = cmp.Comparer(func(a, b identity.Client) bool { return a == b })

// alice is who the claims `good` name.
var alice = identity.Client{User: "alice", Tenant: "acme", Tier: "pro", Address: peer, By: identity.JWT,
	Authenticated: true, AddressTrusted: true}

func jwtOnly(source string) identity.Config {
	return identity.Config{Order: []identity.EvidenceKind{identity.JWT}, Issuers: []identity.Issuer{issuer(source)}}
}

func TestTokensThatAreAccepted(t *testing.T) {
	r, _ := resolver(t, jwtOnly(writeKeys(t, testKeys())), atNoon)
	unix := func(d time.Duration) int64 { return noon.Add(d).Unix() }
	ed := func(changes object) string { return "Bearer " + sign("EdDSA", "ed", edKey, with(good, changes)) }
	cases := map[string]struct {
		authorization string
		want          identity.Client
	}{
		"EdDSA":                        {ed(nil), alice},
		"RS256":                        {"Bearer " + sign("RS256", "rsa", rsaKey(), good), alice},
		"ES256":                        {"Bearer " + sign("ES256", "p256", p256Key(), good), alice},
		"scheme in lower case":         {"bearer " + ed(nil)[7:], alice},
		"scheme in upper case":         {"BEARER " + ed(nil)[7:], alice},
		"scheme in mixed case":         {"bEaReR " + ed(nil)[7:], alice},
		"blanks around":                {" \t " + ed(nil) + "\t ", alice},
		"blanks between":               {"Bearer  \t " + ed(nil)[7:], alice},
		"audience in a list":           {ed(object{"aud": []string{"x", "shop"}}), alice},
		"the other audience":           {ed(object{"aud": "other"}), alice},
		"expired within the leeway":    {ed(object{"exp": unix(-29 * time.Second)}), alice},
		"not yet valid, in the leeway": {ed(object{"nbf": unix(29 * time.Second)}), alice},
		"issued in the future":         {ed(object{"iat": unix(time.Hour)}), alice},
		"expiry with a fraction":       {ed(object{"exp": float64(unix(time.Hour)) + 0.5}), alice},
		"no kid, one key of that kind": {"Bearer " + sign("EdDSA", "", edKey, good), alice},
		"numeric user": {ed(object{"sub": 12345678901234567}), as(alice, "12345678901234567", "acme",
			"pro")},
		"tenant is a list":   {ed(object{"org_id": []string{"acme"}}), as(alice, "alice", "", "pro")},
		"no tenant, no tier": {ed(object{"org_id": nil, "plan": nil}), as(alice, "alice", "", "")},
		"user is not ASCII":  {ed(object{"sub": "zoë"}), as(alice, "zoë", "acme", "pro")},
		"keys in the header do nothing": {"Bearer " +
			signHeader(object{"alg": "EdDSA", "kid": "ed", "jku": "https://evil.example", "x5u": "https://evil.example",
				"jwk": publicJWK("ed", &otherRSA().PublicKey)}, edKey, good), alice},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"first seen", "remembered"} {
				got, refusal := r.Resolve(&identity.Evidence{Headers: headers("authorization", c.authorization),
					Peer: peer})
				if refusal != nil {
					t.Fatalf("%s: refused: %s", when, refusal.Message)
				}
				if diff := cmp.Diff(c.want, got, compareClients); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
		})
	}
}

func as(c identity.Client, user, tenant, tier string) identity.Client {
	c.User, c.Tenant, c.Tier = user, tenant, tier
	return c
}

// worthless are authorizations that yield nothing: the next evidence is asked.
func worthless() map[string]string {
	valid := sign("EdDSA", "ed", edKey, good)
	parts := strings.Split(valid, ".")
	spki := must.Value(x509.MarshalPKIXPublicKey(&rsaKey().PublicKey))
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})
	unix := func(d time.Duration) int64 { return noon.Add(d).Unix() }
	tokens := map[string]string{
		"unsigned": sign("none", "ed", jwt.UnsafeAllowNoneSignatureType, good),
		"unsigned, signature kept": signHeader(object{"alg": "none"}, jwt.UnsafeAllowNoneSignatureType, good) +
			parts[2],
		"none in another case":           b64([]byte(`{"alg":"NoNe"}`)) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key, PEM": sign("HS256", "rsa", publicPEM, good),
		"HS256 with the public key, DER": sign("HS256", "rsa", spki, good),
		"HS256 with the modulus":         sign("HS256", "rsa", rsaKey().N.Bytes(), good),
		"HS256 with no kid":              sign("HS256", "", publicPEM, good),
		"HS256 with an empty secret":     sign("HS256", "rsa", []byte{}, good),
		"PS256, not supported":           sign("PS256", "rsa", rsaKey(), good),
		"RS512, not listed":              sign("RS512", "rsa", rsaKey(), good),
		"ES384, not listed":              sign("ES384", "p384", p384Key(), good),
		"RS256 under the id of another":  sign("RS256", "ed", rsaKey(), good),
		"no alg":                         signText("EdDSA", edKey, b64([]byte(`{"kid":"ed"}`))+"."+parts[1]),
		"alg is a number":                signText("EdDSA", edKey, b64([]byte(`{"alg":5,"kid":"ed"}`))+"."+parts[1]),
		"alg in another case": signText("EdDSA", edKey, b64([]byte(`{"ALG":"EdDSA","kid":"ed"}`))+"."+
			parts[1]),
		"another's key":   sign("RS256", "rsa", otherRSA(), good),
		"unknown kid":     sign("EdDSA", "nobody", edKey, good),
		"kid is a number": signText("EdDSA", edKey, b64([]byte(`{"alg":"EdDSA","kid":7}`))+"."+parts[1]),
		"kid of a path":   sign("EdDSA", "../../ed", edKey, good),
		"critical extension": signHeader(object{"alg": "EdDSA", "kid": "ed", "crit": []string{"exp"}}, edKey,
			good),
		"expired":                  sign("EdDSA", "ed", edKey, with(good, object{"exp": unix(-31 * time.Second)})),
		"no expiry":                sign("EdDSA", "ed", edKey, with(good, object{"exp": nil})),
		"expiry is a text":         sign("EdDSA", "ed", edKey, with(good, object{"exp": "tomorrow"})),
		"not yet valid":            sign("EdDSA", "ed", edKey, with(good, object{"nbf": unix(31 * time.Second)})),
		"wrong audience":           sign("EdDSA", "ed", edKey, with(good, object{"aud": "bank"})),
		"audience begins alike":    sign("EdDSA", "ed", edKey, with(good, object{"aud": "shop2"})),
		"no audience":              sign("EdDSA", "ed", edKey, with(good, object{"aud": nil})),
		"audience is a number":     sign("EdDSA", "ed", edKey, with(good, object{"aud": 1})),
		"wrong issuer":             sign("EdDSA", "ed", edKey, with(good, object{"iss": "https://evil.example"})),
		"issuer with a slash more": sign("EdDSA", "ed", edKey, with(good, object{"iss": "https://issuer.example/"})),
		"no issuer":                sign("EdDSA", "ed", edKey, with(good, object{"iss": nil})),
		"issuer is a list": sign("EdDSA", "ed", edKey,
			with(good, object{"iss": []string{"https://issuer.example"}})),
		"no user":                     sign("EdDSA", "ed", edKey, with(good, object{"sub": nil})),
		"empty user":                  sign("EdDSA", "ed", edKey, with(good, object{"sub": ""})),
		"user is a list":              sign("EdDSA", "ed", edKey, with(good, object{"sub": []string{"alice"}})),
		"user is true":                sign("EdDSA", "ed", edKey, with(good, object{"sub": true})),
		"user is not UTF-8":           signText("EdDSA", edKey, parts[0]+"."+b64(claimsOf("a\xff"))),
		"user is half a character":    signText("EdDSA", edKey, parts[0]+"."+b64(claimsOf(`a\ud800`))),
		"claims are no object":        signText("EdDSA", edKey, parts[0]+"."+b64([]byte(`["alice"]`))),
		"claims are null":             signText("EdDSA", edKey, parts[0]+"."+b64([]byte(`null`))),
		"claims and more":             signText("EdDSA", edKey, parts[0]+"."+b64(append(claimsOf("alice"), "{}"...))),
		"two parts":                   parts[0] + "." + parts[1],
		"four parts":                  valid + ".x",
		"five parts, as if encrypted": valid + ".x.y",
		"empty parts":                 "..",
		"dots":                        strings.Repeat(".", 8000),
		"no signature":                parts[0] + "." + parts[1] + ".",
		"signature cut":               valid[:len(valid)-4],
		"signature and more":          valid + "AAAA",
		"signature of another token":  parts[0] + "." + b64(claimsOf("bob")) + "." + parts[2],
		"padding":                     valid + "==",
		"trailing bits":               valid[:len(valid)-1] + string(valid[len(valid)-1]+1),
		"line break inside":           parts[0] + "." + parts[1] + "." + parts[2][:5] + "\n" + parts[2][5:],
		"blank inside":                parts[0] + ". " + parts[1] + "." + parts[2],
		"NUL behind":                  valid + "\x00",
		"not UTF-8":                   "\xff\xfe." + parts[1] + "." + parts[2],
		"rewritten bytes":             strings.Replace(valid, "e", "!", 1),
	}
	for name, token := range tokens {
		tokens[name] = "Bearer " + token
	}
	for name, whole := range map[string]string{
		"no token": "Bearer", "no token but a blank": "Bearer ", "no scheme": valid, "other scheme": "Basic " + valid,
		"scheme begins alike": "Bearers " + valid, "no blank": "Bearer" + valid, "colon": "Bearer: " + valid,
		"other scheme with commas": `Digest username="alice", realm="x"`, "empty": "",
		"long, of another scheme": "Basic " + strings.Repeat("a", 9000),
	} {
		tokens[name] = whole
	}
	return tokens
}

// claimsOf are good claims with a user that is written unchanged.
func claimsOf(user string) []byte {
	return []byte(`{"iss":"https://issuer.example","aud":"shop","exp":1780318800,"sub":"` + user + `"}`)
}

func TestWorthlessTokensYieldNothing(t *testing.T) {
	r, _ := resolver(t, jwtOnly(writeKeys(t, testKeys())), atNoon)
	if got, _ := r.Resolve(&identity.Evidence{Headers: headers("authorization",
		"Bearer "+signText("EdDSA", edKey, b64([]byte(`{"alg":"EdDSA"}`))+"."+b64(claimsOf("al")))),
		Peer: peer}); got.User != "al" {
		t.Fatalf("the claims that the cases vary yield %q: the cases would prove nothing", got.User)
	}
	for name, authorization := range worthless() {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"first seen", "remembered"} {
				got, refusal := r.Resolve(&identity.Evidence{Headers: headers("authorization", authorization),
					Peer: peer})
				if refusal != nil {
					t.Fatalf("%s: refused: %s", when, refusal.Message)
				}
				if diff := cmp.Diff(unknown(peer), got, compareClients); diff != "" {
					t.Errorf("%s: %s", when, diff)
				}
			}
		})
	}
}

func TestContradictingAuthorizationsAreRefused(t *testing.T) {
	r, _ := resolver(t, jwtOnly(writeKeys(t, testKeys())), atNoon)
	valid := "Bearer " + sign("EdDSA", "ed", edKey, good)
	longest := "Bearer " + strings.Repeat("a", 8<<10-7)
	cases := map[string]struct {
		values  []string
		refused bool
	}{
		"twice":                             {[]string{valid, valid}, true},
		"twice, joined":                     {[]string{valid + "," + valid}, true},
		"twice, joined with a blank":        {[]string{valid + ", " + valid}, true},
		"beside another scheme":             {[]string{valid, "Basic YTpi"}, true},
		"behind another scheme":             {[]string{"Basic YTpi", valid}, true},
		"joined behind another scheme":      {[]string{"Basic YTpi,bearer x"}, true},
		"inside a quoted text":              {[]string{`Digest a="x, BEARER y"`}, true},
		"beside an empty one":               {[]string{valid, ""}, true},
		"joined with an empty one":          {[]string{valid + ","}, true},
		"two without tokens":                {[]string{"Bearer", "Bearer"}, true},
		"8 KiB":                             {[]string{longest}, false},
		"8 KiB and blanks around":           {[]string{"  " + longest + "  "}, false},
		"8 KiB and one byte":                {[]string{longest + "a"}, true},
		"60 KiB":                            {[]string{"Bearer " + strings.Repeat("a.", 30<<10)}, true},
		"two others":                        {[]string{"Basic YTpi", "Basic YTpi"}, false},
		"one":                               {[]string{valid}, false},
		"long, of another scheme, twice":    {[]string{strings.Repeat("a", 9<<10), strings.Repeat("a", 9<<10)}, false},
		"Bearer is not where a part begins": {[]string{"Basic Bearer, Basic Bearer"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var all []identity.Header
			for _, v := range c.values {
				all = append(all, identity.Header{Name: "authorization", Value: v})
			}
			client, refusal := r.Resolve(&identity.Evidence{Headers: all, Peer: peer})
			if (refusal != nil) != c.refused {
				t.Fatalf("refusal %v, want one: %v", refusal, c.refused)
			}
			if refusal != nil && (refusal.Status != 400 || refusal.Message == "") {
				t.Errorf("refused with %+v, want status 400 and a message", refusal)
			}
			if refusal != nil && client != unknown(peer) {
				t.Errorf("a refused request is %+v, want its address alone", client)
			}
		})
	}
}

func TestTokensAreNoBusinessOfOthersOrders(t *testing.T) {
	twice := headers("authorization", "Bearer a", "authorization", "Bearer b")
	for _, c := range []struct {
		order   []identity.EvidenceKind
		refused bool
	}{
		{nil, false},
		{[]identity.EvidenceKind{identity.IP}, false},
		{[]identity.EvidenceKind{identity.APIKey, identity.MTLS}, false},
		{[]identity.EvidenceKind{identity.IP, identity.JWT}, true},
		{[]identity.EvidenceKind{identity.MTLS, identity.JWT}, true},
	} {
		r, _ := resolver(t, identity.Config{Order: c.order}, atNoon)
		_, refusal := r.Resolve(&identity.Evidence{Headers: twice, Peer: peer, Principal: "spiffe://a/b"})
		if (refusal != nil) != c.refused {
			t.Errorf("order %v: refusal %v, want one: %v", c.order, refusal, c.refused)
		}
	}
}

func TestIssuersMayShareAName(t *testing.T) {
	staff, shop := issuer(writeKeys(t, testKeys())), issuer(writeKeys(t, testKeys()))
	staff.Audiences, staff.UserClaim = []string{"staff"}, "mail"
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.JWT},
		Issuers: []identity.Issuer{staff, shop}},
		atNoon)
	for want, claims := range map[string]object{"alice": good,
		"a@b.example": with(good, object{"aud": "staff", "mail": "a@b.example"})} {
		got, _ := r.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer "+sign("EdDSA", "ed", edKey,
			claims)), Peer: peer})
		if got.User != want {
			t.Errorf("the token of %s names %q", want, got.User)
		}
	}
}

func TestNoKidNeedsTheOnlyKeyOfItsKind(t *testing.T) {
	twoRSA := keySet(publicJWK("a", &rsaKey().PublicKey), publicJWK("b", &otherRSA().PublicKey),
		publicJWK("ed", edKey.Public()))
	r, _ := resolver(t, jwtOnly(writeKeys(t, twoRSA)), atNoon)
	for name, c := range map[string]struct{ token, want string }{
		"first of two RSA keys": {sign("RS256", "", rsaKey(), good), ""},
		"last of two RSA keys":  {sign("RS256", "", otherRSA(), good), ""},
		"the only Ed25519":      {sign("EdDSA", "", edKey, good), "alice"},
	} {
		got, _ := r.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer "+c.token), Peer: peer})
		if got.User != c.want {
			t.Errorf("%s: user %q, want %q", name, got.User, c.want)
		}
	}
}

func TestAlgorithmsAreThoseThatVerify(t *testing.T) {
	if got := identity.Algorithms(); slices.ContainsFunc(got, func(a string) bool {
		return a == "none" || strings.HasPrefix(a, "HS")
	}) || len(got) != 7 {
		t.Errorf("algorithms %v: want the seven of RS, ES and EdDSA", got)
	}
	every := issuer(writeKeys(t, testKeys()))
	every.Algorithms = identity.Algorithms()
	r, _ := resolver(t, identity.Config{Order: []identity.EvidenceKind{identity.JWT},
		Issuers: []identity.Issuer{every}},
		atNoon)
	for _, token := range []string{sign("RS384", "rsa", rsaKey(), good), sign("RS512", "rsa", rsaKey(), good),
		sign("ES384", "p384", p384Key(), good)} {
		got, _ := r.Resolve(&identity.Evidence{Headers: headers("authorization", "Bearer "+token), Peer: peer})
		if got.User != "alice" {
			t.Errorf("a token with a listed algorithm yields %q", got.User)
		}
	}
}
