package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"net/url"
	"slices"
	"strings"
	"time"
)

// keyTable finds API keys by their digest.
type keyTable struct {
	header, query string
	keys          map[uint64][]Key // by the first 8 bytes of the digest
}

func newKeyTable(cfg KeysConfig) *keyTable {
	t := &keyTable{header: strings.ToLower(cfg.Header), query: cfg.Query, keys: make(map[uint64][]Key, len(cfg.Keys))}
	for _, key := range cfg.Keys {
		if key.User == "" {
			key.User = key.ID
		}
		at := place(&key.SHA256)
		t.keys[at] = append(t.keys[at], key)
	}
	return t
}

// place is where the keys of a digest stand. It depends on the digest alone, of which no client can steer a bit towards
// a key that he does not know.
func place(digest *[sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(digest[:8]) }

// keyOf finds the key that a request carries, or none. One sent twice is refused: two headers, a header joined by
// commas, two parameters, or both a header and a parameter where both are configured.
func (t *keyTable) keyOf(ev *Evidence) (string, *Refusal) {
	sent, key := 0, ""
	for i := range ev.Headers {
		if t.header != "" && ev.Headers[i].Name == t.header {
			key = trimBlanks(ev.Headers[i].Value)
			sent += 1 + strings.Count(key, ",")
		}
	}
	if t.query != "" {
		for pair := range strings.SplitSeq(queryOf(ev.Path), "&") {
			name, value, _ := strings.Cut(pair, "=")
			if unescape(name) == t.query {
				key = trimBlanks(unescape(value))
				sent++
			}
		}
	}
	if sent > 1 {
		return "", refuseKeys
	}
	return key, nil
}

// queryOf is the query of a path, without its question mark.
func queryOf(path string) string {
	path, _, _ = strings.Cut(path, "#")
	_, query, _ := strings.Cut(path, "?")
	return query
}

// unescape decodes percents once. A plus stays one: keys are often base64, and only forms mean a blank by it. What
// cannot be decoded is not a key.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return ""
	}
	return decoded
}

// lookUp reports whether a key is known and good, and fills in whose it is. A digest is compared in constant time: the
// time does not reveal how much of it was right.
func (t *keyTable) lookUp(key string, now func() time.Time, client *Client) bool {
	if key == "" || len(key) > maxCredential {
		return false
	}
	digest := sha256.Sum256([]byte(key))
	here := t.keys[place(&digest)]
	for i := range here {
		k := &here[i]
		if subtle.ConstantTimeCompare(k.SHA256[:], digest[:]) == 1 && k.good(now) {
			client.User, client.Tenant, client.Tier, client.Key = k.User, k.Tenant, k.Tier, k.ID
			return true
		}
	}
	return false
}

// KeyFault is why the API key of a request is not accepted: "is not known", "is revoked" or "has expired". It is
// empty where the key is good, none is sent or none is asked for, and where the request brings several.
func (r *Resolver) KeyFault(ctx context.Context, ev *Evidence) string {
	if r == nil || !slices.Contains(r.order, APIKey) {
		return ""
	}
	key, refusal := r.keys.keyOf(ev)
	if key == "" || refusal != nil {
		return ""
	}
	digest := sha256.Sum256([]byte(key))
	here := r.keys.keys[place(&digest)]
	at := slices.IndexFunc(here, func(k Key) bool { return k.SHA256 == digest })
	if at >= 0 {
		return here[at].fault(r.now)
	}
	if r.others != nil && len(key) <= maxCredential {
		if k, known := r.others(ctx, digest); known {
			return k.fault(r.now)
		}
	}
	return "is not known"
}

// fault is why a key that is known may not be used now, or nothing.
func (k *Key) fault(now func() time.Time) string {
	switch {
	case k.good(now):
		return ""
	case k.Revoked:
		return "is revoked"
	}
	return "has expired"
}

// KeyPlace is where clients send their API keys, as people call it.
func (r *Resolver) KeyPlace() string {
	if r.keys.header != "" {
		return "the header " + r.keys.header
	}
	return "the parameter " + r.keys.query
}

// KeyClient returns the client of an API key by the key's id, also where the key is revoked or has expired.
func (r *Resolver) KeyClient(id string) (Client, bool) {
	for _, here := range r.keys.keys {
		for i := range here {
			if k := &here[i]; k.ID == id {
				return Client{User: k.User, Tenant: k.Tenant, Tier: k.Tier, Key: id}, true
			}
		}
	}
	return Client{}, false
}

// has reports whether a key of that digest is in the table, be it good or not.
func (t *keyTable) has(digest *[sha256.Size]byte) bool {
	return slices.ContainsFunc(t.keys[place(digest)], func(k Key) bool { return k.SHA256 == *digest })
}

// good reports whether a key may be used now.
func (k *Key) good(now func() time.Time) bool {
	return !k.Revoked && (k.Expires.IsZero() || now().Before(k.Expires))
}
