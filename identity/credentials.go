package identity

import (
	"net/http"
	"strings"
)

// maxCredential is the longest authorization or API key that is looked at, in bytes.
const maxCredential = 8 << 10

// What is refused, and why. The texts are for the client: they do not reveal the configuration.
var (
	refuseTokens = &Refusal{Status: http.StatusBadRequest, Message: "More than one credential in authorization."}
	refuseLength = &Refusal{Status: http.StatusBadRequest, Message: "The credential in authorization is too long."}
	refuseKeys   = &Refusal{Status: http.StatusBadRequest, Message: "More than one API key."}
)

// readToken finds the token of `authorization: Bearer`, or none. Headers that were sent twice come joined by commas or
// one by one, as the mesh is configured; both are taken apart alike. Where one part is a Bearer, another would leave
// open which of them the service behind believes, so that is refused; other schemes may hold commas and prove nothing.
func readToken(ev *Evidence) (string, *Refusal) {
	parts, bearer := 0, ""
	for i := range ev.Headers {
		if ev.Headers[i].Name != "authorization" {
			continue
		}
		for part := range strings.SplitSeq(ev.Headers[i].Value, ",") {
			parts++
			if part = trimBlanks(part); isBearer(part) {
				bearer = part
			}
		}
	}
	switch {
	case bearer == "":
		return "", nil
	case parts > 1:
		return "", refuseTokens
	case len(bearer) > maxCredential:
		return "", refuseLength
	}
	rest := bearer[len("bearer"):]
	token := strings.TrimLeft(rest, blanks)
	if len(token) == len(rest) {
		return "", nil // another scheme, whose name begins alike
	}
	return token, nil
}

// isBearer reports whether a part of an authorization begins with Bearer, in any case.
func isBearer(part string) bool {
	return len(part) >= len("bearer") && strings.EqualFold(part[:len("bearer")], "bearer")
}

// blanks are what HTTP allows around a value.
const blanks = " \t"

func trimBlanks(s string) string { return strings.Trim(s, blanks) }
