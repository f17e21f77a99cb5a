package descriptors

import (
	"strings"
	"testing"
)

func TestHeaderNames(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "x-a": true, "X_a.1!~": true, ":path": false, "a b": false, "a\r\n": false, "é": false,
		"a\xff": false, "a\x7f": false,
		strings.Repeat("x", 256): true, strings.Repeat("x", 257): false,
	} {
		if HeaderName(name) != want {
			t.Errorf("header name %q: %t", name, !want)
		}
	}
	if !Token(strings.Repeat("x", 257)) {
		t.Error("a long token is refused as a token, although only its length is wrong")
	}
}
