package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/MicahParks/jwkset"
)

// Bounds of a key set.
const (
	maxDocument = 256 << 10 // bytes
	maxKeys     = 64
	minRSA      = 2048 // bits
	maxRSA      = 8192 // bits: what a check of a signature costs grows with them
)

// keys is one state of a key set. It is never changed, only replaced as a whole, so a key that left is gone.
type keys struct {
	generation uint64 // counts the changes; 0: nothing was loaded yet
	all        []publicKey
	byID       map[string][]publicKey
	unnamed    []publicKey // those without an id
}

// publicKey is one key that may verify signatures.
type publicKey struct {
	id     string
	alg    string // the only algorithm it is for; empty: all of its family
	family string // see families
	public any
}

// fits reports whether signatures of an algorithm may be checked with the key. Without that, a token could choose how a
// key is used.
func (k *publicKey) fits(alg string) bool {
	return families[alg] == k.family && (k.alg == "" || k.alg == alg || k.alg == "Ed25519" && alg == "EdDSA")
}

// keysFor returns the keys of an id, or the only key without an id that fits where no key has that id; without an id,
// the only key that fits. It reports whether the id is known: one that is not may be new at the issuer. Where no key
// has an id, none can be new.
func (k *keys) keysFor(id, alg string) ([]publicKey, bool) {
	if id == "" {
		return onlyFit(k.all, alg), true
	}
	if found := k.byID[id]; len(found) > 0 {
		return found, true
	}
	found := onlyFit(k.unnamed, alg)
	return found, len(found) > 0 && len(k.byID) == 0
}

// onlyFit returns the only key that fits an algorithm, nil if none or several do.
func onlyFit(all []publicKey, alg string) []publicKey {
	var found []publicKey
	for i := range all {
		if !all[i].fits(alg) {
			continue
		}
		if found != nil {
			return nil
		}
		found = all[i : i+1]
	}
	return found
}

// parseKeys reads a key set. Keys that cannot verify signatures here (other kinds, too short, for encryption) are left
// out; a document that is not a key set, or has too many keys, is an error as a whole.
func parseKeys(document []byte) (*keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	err := json.Unmarshal(document, &set)
	if err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	if set.Keys == nil {
		return nil, errors.New("read the key set: it must have a list of keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("read the key set: it has %d keys, at most %d", len(set.Keys), maxKeys)
	}
	k := &keys{byID: map[string][]publicKey{}}
	for _, raw := range set.Keys {
		key, ok := parseKey(raw)
		if !ok {
			continue
		}
		k.all = append(k.all, key)
		if key.id == "" {
			k.unnamed = append(k.unnamed, key)
			continue
		}
		k.byID[key.id] = append(k.byID[key.id], key)
	}
	return k, nil
}

// parseKey reads one key of a set.
func parseKey(raw json.RawMessage) (publicKey, bool) {
	var m jwkset.JWKMarshal
	err := json.Unmarshal(raw, &m)
	if err != nil {
		return publicKey{}, false
	}
	if m.USE != "" && m.USE != jwkset.UseSig {
		return publicKey{}, false
	}
	if len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify) {
		return publicKey{}, false
	}
	// Certificates are not looked at: who may publish keys at this place is trusted, and nothing else is fetched.
	m.X5C, m.X5T, m.X5TS256, m.X5U = nil, "", "", ""
	jwk, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return publicKey{}, false
	}
	key := publicKey{id: m.KID, alg: m.ALG.String(), family: familyOf(jwk.Key()), public: jwk.Key()}
	return key, key.family != ""
}

// familyOf is the family of a public key, empty for one that is not accepted.
func familyOf(key any) string {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSA && bits <= maxRSA {
			return "RSA"
		}
	case *ecdsa.PublicKey:
		return key.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return ""
}
