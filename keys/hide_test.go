package keys

import (
	"bytes"
	"testing"
)

// TestIdentitiesAreHidden hides a text with and without a secret, and reads it with the same one, another one, and
// after a change.
func TestIdentitiesAreHidden(t *testing.T) {
	text := []byte(`[{"domain":"shop","kind":"user","name":"alice"}]`)
	plain, sealed, other := NewNames("", nil), NewNames("p", []byte("secret")),
		NewNames("p", []byte("another"))
	if got, err := plain.Show(plain.Hide(text)); !bytes.Equal(got, text) || err != nil {
		t.Errorf("without a secret it is %q, %v", got, err)
	}
	hidden := sealed.Hide(text)
	if bytes.Contains(hidden, []byte("alice")) || bytes.Equal(hidden, sealed.Hide(text)) {
		t.Errorf("%q shows a name, or is the same twice", hidden)
	}
	if got, err := sealed.Show(hidden); !bytes.Equal(got, text) || err != nil {
		t.Errorf("with the secret it is %q, %v", got, err)
	}
	changed := bytes.Clone(hidden)
	changed[len(changed)-1] ^= 1
	for what, read := range map[string]func() ([]byte, error){
		"another secret": func() ([]byte, error) { return other.Show(hidden) },
		"a change":       func() ([]byte, error) { return sealed.Show(changed) },
		"no text":        func() ([]byte, error) { return sealed.Show(nil) },
		"a plain text":   func() ([]byte, error) { return sealed.Show(text) },
	} {
		if got, err := read(); err == nil {
			t.Errorf("with %s it is %q", what, got)
		}
	}
}
