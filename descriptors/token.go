package descriptors

import "strings"

// TokenMarks are the characters that a token of RFC 9110 may hold besides letters and digits.
const TokenMarks = "!#$%&'*+-.^_`|~"

// Token reports whether text is a token of RFC 9110. The name of a header must be one, so that a pseudo-header is
// refused.
func Token(text string) bool {
	for i := range len(text) {
		if !tokenByte(text[i]) {
			return false
		}
	}
	return text != ""
}

func tokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte(TokenMarks, c) >= 0
}

// HeaderName reports whether a header of this name may leave: a token that is not too long.
func HeaderName(name string) bool { return len(name) <= maxText && Token(name) }
