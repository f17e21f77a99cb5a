package rlsvc

import (
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
)

// maxText is the most bytes of a name or a header value that leaves.
const maxText = 256

// appendName appends the name of a limit as printable ASCII without quotes or backslashes. Envoy puts it between quotes
// into a header of the client's response as it is, so any other byte could end the quote, or the header.
func appendName(b []byte, name string) []byte {
	for i := range min(len(name), maxText) {
		c := name[i]
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			c = '_'
		}
		b = append(b, c)
	}
	return b
}

// appendValue appends a header's value as printable ASCII. Envoy checks no value that a service hands it: a line break
// would start a header of its own.
func appendValue(b []byte, value string) []byte {
	for i := range min(len(value), maxText) {
		c := value[i]
		if c < ' ' || c > '~' {
			c = '?'
		}
		b = append(b, c)
	}
	return b
}

// headerName reports whether a header of this name may leave: a token of RFC 9110, so no pseudo-header either.
func headerName(name string) bool {
	if name == "" || len(name) > maxText {
		return false
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return false
		}
	}
	return true
}

func tokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// title is what a limit is called where a name is needed: its own, else its rule's.
func title(e *descriptors.Effect) string {
	if e.Name != "" {
		return e.Name
	}
	return e.Rule
}

// validText returns the text with every byte that is not UTF-8 replaced. Only such a text is copied.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
