package keys

import "crypto/cipher"

// profileSchema is the version of the layout of profiles, as counterSchema is that of counters.
const profileSchema = "rec1:"

// Names makes the names that sidecars and a control share. Make one with NewNames.
type Names struct {
	prefix string
	writer Writer
	hider  cipher.AEAD // nil without a secret
}

// NewNames makes the names for a prefix and a secret, which may be empty.
func NewNames(prefix string, secret []byte) Names {
	return Names{prefix, NewWriter(secret), newHider(secret)}
}

// Shared returns a key that all sidecars of a prefix know, which no counter and no profile has.
func (k Names) Shared(name string) string {
	head, seal := schemaHead(profileSchema, k.prefix, "sidecars", false)
	return head + seal + ":" + name
}

// Identity returns how the record of usage and events names an identity: its kind and its value, or with a secret an
// HMAC of both. An empty value has the name "".
func (k Names) Identity(kind, value string) string {
	switch {
	case value == "":
		return ""
	case k.writer.macs == nil:
		return kind + ":" + value
	default:
		return string(k.writer.appendMAC([]byte(kind+":"), []Value{{Text: kind}, {Text: value}}))
	}
}

// Profile returns where the profile of an identity is kept: under a prefix of its own, in the slot of the counters
// that count by that identity alone. With a secret the identity is an HMAC, as in the keys of counters.
func (k Names) Profile(domain, kind, name string) string {
	b := appendHead(make([]byte, 0, len(k.prefix)+len(profileSchema)+len(domain)+len(name)+len(kind)+16), profileSchema,
		k.prefix, domain)
	b = k.writer.AppendValues(b, []Value{{Text: name}})
	return string(append(append(b, '}', ':'), kind...))
}

// Counted returns how the keys of a domain's counters begin, and how they write an identity.
func (k Names) Counted(domain, name string) (head, value string) {
	head, _ = Head(k.prefix, domain, false)
	return head, string(k.writer.AppendValues(nil, []Value{{Text: name}})[1:])
}

// Heartbeat returns where the sidecars that share a store count each other. No counter has a key so short.
func Heartbeat(prefix string) string {
	head, seal := Head(prefix, "sidecars", false)
	return head + seal + ":heartbeat"
}
