package journal

import (
	"crypto/sha256"
	"encoding/base64"
)

// KeyKind is the word before the colon in the names of API keys in rows of usage, which no identity has.
const KeyKind = "key"

// keyDigest is how many bytes of a digest name an API key.
const keyDigest = 16

// KeyOf returns the name of an API key in rows of usage: the beginning of a digest. A mesh may send the key itself
// where another sends its id, and a key must not be readable in a stream.
func KeyOf(key string) string {
	digest := sha256.Sum256([]byte(key))
	return KeyOfDigest(digest[:])
}

// KeyOfDigest returns KeyOf of the text that has a SHA-256.
func KeyOfDigest(digest []byte) string {
	return base64.RawURLEncoding.EncodeToString(digest[:keyDigest])
}

// Bounds of what is remembered of names. An HMAC costs as much as the rest of a row.
const (
	maxNames     = 2048
	maxNameValue = 128 // bytes; the name of a longer one is made each time
)

// names makes the names of identities, and remembers the last ones.
type names struct {
	name  func(kind, value string) string
	known [kinds]map[string]string
	count int
}

// of returns the name of an identity.
func (n *names) of(kind Kind, value []byte) string {
	switch {
	case kind == folded:
		return Others
	case len(value) == 0:
		return ""
	}
	if name, known := n.known[kind][string(value)]; known {
		return name
	}
	text := string(value)
	if kind == countedKey {
		text = KeyOf(text)
	}
	name := n.name(kind.String(), text)
	if len(value) > maxNameValue {
		return name
	}
	if n.count >= maxNames {
		n.count, n.known = 0, [kinds]map[string]string{}
	}
	if n.known[kind] == nil {
		n.known[kind] = map[string]string{}
	}
	n.known[kind][string(value)] = name
	n.count++
	return name
}

// key returns what an event has of an API key: its id where that is known and names are plain, else its name in rows of
// usage. Events go through Redis, where a key must not be readable.
func (n *names) key(value []byte, isID bool) string {
	if isID && n.bare(APIKey, value) == string(value) {
		return string(value)
	}
	return n.of(countedKey, value)
}

// bare returns the name without its kind.
func (n *names) bare(kind Kind, value []byte) string {
	name := n.of(kind, value)
	if head := len(kind.String()) + 1; len(name) > head {
		return name[head:]
	}
	return name
}
