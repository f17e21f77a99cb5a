package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
)

// errHidden means that a text was hidden with another secret, or changed.
var errHidden = errors.New("a text cannot be read: KEY_SECRET has to be the same everywhere")

// newHider makes what hides texts with a secret; nil without one.
func newHider(secret []byte) cipher.AEAD {
	if len(secret) == 0 {
		return nil
	}
	key := sha256.Sum256(append([]byte("spillway news\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	hider, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block is AES
	}
	return hider
}

// Hide makes a text with identities fit to pass through Redis: with a secret it is encrypted, without one it stays.
func (k Names) Hide(text []byte) []byte {
	if k.hider == nil {
		return text
	}
	nonce := make([]byte, k.hider.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return k.hider.Seal(nonce, nonce, text, nil)
}

// Show is the text that Hide made something of.
func (k Names) Show(hidden []byte) ([]byte, error) {
	if k.hider == nil {
		return hidden, nil
	}
	size := k.hider.NonceSize()
	if len(hidden) < size {
		return nil, errHidden
	}
	text, err := k.hider.Open(nil, hidden[:size], hidden[size:], nil)
	if err != nil {
		return nil, errHidden
	}
	return text, nil
}
