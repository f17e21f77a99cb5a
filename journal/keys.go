package journal

import (
	"crypto/sha256"
	"encoding/base64"
)

// keyDigest is how many bytes of a digest name an API key.
const keyDigest = 16

// KeyOf returns what stands for an API key in rows of usage: the beginning of a digest. A mesh may send the key itself where another sends its id, and a key must
// not be readable in a stream.
func KeyOf(key string) string {
	digest := sha256.Sum256([]byte(key))
	return KeyOfDigest(digest[:])
}

// KeyOfDigest returns KeyOf of the text that has a SHA-256.
func KeyOfDigest(digest []byte) string {
	return base64.RawURLEncoding.EncodeToString(digest[:keyDigest])
}

// KeyKind is the word before the colon in the names of API keys in rows of usage, which no identity has.
const KeyKind = "key"
