package identity_test

import (
	"crypto"
	"testing"
	"time"
)

// unnamedJWK is the public key in the form that key sets without ids hold.
func unnamedJWK(key crypto.PublicKey) object { return with(publicJWK("", key), object{"kid": nil}) }

func TestAnUnknownKidNeedsTheOnlyKeyWithoutOne(t *testing.T) {
	ed, rs, other := unnamedJWK(edKey.Public()), unnamedJWK(&rsaKey().PublicKey), unnamedJWK(&otherRSA().PublicKey)
	edT, rsT := sign("EdDSA", "k1", edKey, good), sign("RS256", "k1", rsaKey(), good)
	for name, c := range map[string]struct {
		keys  []object
		token string
		want  string
	}{
		"the only key":                {[]object{ed}, edT, "alice"},
		"the only RSA key":            {[]object{ed, rs}, rsT, "alice"},
		"one of two RSA keys":         {[]object{rs, other, ed}, rsT, ""},
		"beside keys with other ids":  {[]object{publicJWK("k2", &otherRSA().PublicKey), rs}, rsT, "alice"},
		"beside the key with its id":  {[]object{publicJWK("k1", &otherRSA().PublicKey), rs}, rsT, ""},
		"a key with another id":       {[]object{publicJWK("k2", &rsaKey().PublicKey)}, rsT, ""},
		"a key for another algorithm": {[]object{with(rs, object{"alg": "RS512"})}, rsT, ""},
		"the signature of another":    {[]object{other}, rsT, ""},
	} {
		r, _ := resolver(t, jwtOnly(writeKeys(t, keySet(c.keys...))), atNoon)
		if user := (&scene{resolver: r}).user(c.token); user != c.want {
			t.Errorf("%s: user %q, want %q", name, user, c.want)
		}
	}
}

// A set without ids never lacks the id of a token, so it is not fetched again; in one with ids the key of a token may
// be new.
func TestAKidIsNotAskedForWhereKeysHaveNone(t *testing.T) {
	named := publicJWK("k2", &rsaKey().PublicKey)
	for name, c := range map[string]struct {
		document []byte
		fetches  int
	}{
		"no ids":                    {keySet(unnamedJWK(edKey.Public())), 1},
		"no ids, for another token": {keySet(unnamedJWK(&rsaKey().PublicKey)), 2},
		"some ids":                  {keySet(unnamedJWK(edKey.Public()), named), 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, c.document, func(t *testing.T, s *scene) {
				pass(time.Second)
				s.user(sign("EdDSA", "k1", edKey, good))
				pass(time.Minute)
				if got := len(s.asked()); got != c.fetches {
					t.Errorf("%d fetches in a minute, want %d", got, c.fetches)
				}
			})
		})
	}
}
