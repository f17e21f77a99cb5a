package descriptors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"

	"github.com/spillway-mesh/spillway/limit"
)

// Keys are told in docs/decisions/0003-keys.md. In short:
//
//	<prefix>rl1:{<domain>|<value>|…}:<scope>:<rule>:<limit>:<algorithm>    scoped rules
//	<prefix>rl1:{<domain>|<value>|…}:<scope>:<rule>:penalty:pn             their penalties
//	<prefix>rl1:{<domain>|<name>}:<scope>:~<kind>:<limit>:<algorithm>      what a user, tenant or API key has of its own
//	<prefix>rl1:{<domain>|<value>|…}:<key>/<key>…:<limit>:<algorithm>      trees
//	<prefix>rl1:{<domain>|<value>|…}:<key>/<key>…:~<window in µs>:fw       overrides
//
// Where a client that a rule counts by is an address, ~ip follows the hash tag: an address and a user of that name never meet.
//
// A domain that is co-located closes its hash tag early: {<domain>}~|<value>|…:<scope>: and so on, in all of these.
//
// Parts are escaped so that none of the separators can stand in one, which is why two different requests never meet.
const (
	keySchema  = "rl1:"
	maxPart    = 64  // bytes of a part as it came; longer ones are hashed
	maxSection = 512 // bytes of all values, or of a path, once escaped; longer ones are hashed
)

// reserved holds the bytes that are escaped: separators, marks, and all that is no printable ASCII.
var reserved = func() (set [256]bool) {
	for c := range set {
		set[c] = c < 0x21 || c > 0x7e
	}
	for _, c := range []byte("{}:|%#*~") {
		set[c] = true
	}
	return set
}()

var algorithmCodes = [...]string{limit.TokenBucket: "tb", limit.SlidingWindow: "sw", limit.FixedWindow: "fw", limit.SlidingLog: "sl"}

// appendEscape appends one byte as %XX.
func appendEscape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

// appendHash appends mark and 128 bits of the SHA-256 of b[from:], in place of b[from:].
func appendHash(b []byte, from int, mark string) []byte {
	sum := sha256.Sum256(b[from:])
	b = append(b[:from], mark...)
	return hex.AppendEncode(b, sum[:16])
}

// appendPart appends one part of a key. A hashed part starts with the reserved #, so no escaped one equals it.
func appendPart(b []byte, part string) []byte {
	from := len(b)
	if len(part) > maxPart {
		return appendHash(append(b, part...), from, "#")
	}
	for i := 0; i < len(part); i++ {
		if reserved[part[i]] {
			b = appendEscape(b, part[i])
			continue
		}
		b = append(b, part[i])
	}
	return b
}

// appendPathPart is appendPart for one key of a path, in which / separates.
func appendPathPart(b []byte, part string) []byte {
	from := len(b)
	if len(part) > maxPart {
		return appendHash(append(b, part...), from, "#")
	}
	for i := 0; i < len(part); i++ {
		if reserved[part[i]] || part[i] == '/' {
			b = appendEscape(b, part[i])
			continue
		}
		b = append(b, part[i])
	}
	return b
}

// appendSection ends a run of parts that began at from: one that grew too long is hashed as a whole. Parts hold no two #
// in a row, so ## tells the two apart.
func appendSection(b []byte, from int) []byte {
	if len(b)-from <= maxSection {
		return b
	}
	return appendHash(b, from, "##")
}

// limitPart is the <limit> of a key: its name, else its place in the list, counted from 1. A name that starts with a
// digit has that digit escaped, so that no name is taken for a place.
func limitPart(name string, place int) string {
	if name == "" {
		return strconv.Itoa(place + 1)
	}
	b := appendPart(nil, name)
	if b[0] >= '0' && b[0] <= '9' {
		b = append(appendEscape(nil, b[0]), b[1:]...)
	}
	return string(b)
}

// limitTail is the end of a key: the limit and its algorithm.
func limitTail(l limit.Limit, place int) string {
	return ":" + limitPart(l.Name, place) + ":" + algorithmCodes[l.Algorithm]
}

var scopeNames = [...]struct {
	scope Scope
	name  string
	attr  attribute
}{
	{ScopeTenant, "tenant", attrTenant}, {ScopeUser, "user", attrUser}, {ScopeIP, "ip", attrIP}, {ScopeEndpoint, "endpoint", attrEndpoint},
	{ScopeAPIKey, "api_key", attrAPIKey}, {ScopeTier, "tier", attrTier}, {ScopeClient, "client", attrClient},
}

// String returns the scope as keys and pages write it: its attributes joined by +, or global.
func (s Scope) String() string {
	text := ""
	for _, named := range scopeNames {
		if s&named.scope == 0 {
			continue
		}
		if text != "" {
			text += "+"
		}
		text += named.name
	}
	if text == "" {
		return "global"
	}
	return text
}

// keyHead is how all keys of a domain begin, and seal what follows the identity in them. The prefix is the operator's: only
// what would break the hash tag is escaped. Without co-location a : follows the tag, and with it a ~, also where there is no
// identity, so that keys of the two kinds never meet.
func keyHead(prefix, domain string, coLocate bool) (head, seal string) {
	return schemaHead(keySchema, prefix, domain, coLocate)
}

// schemaHead is keyHead for keys of another schema.
func schemaHead(schema, prefix, domain string, coLocate bool) (head, seal string) {
	b := appendHead(nil, schema, prefix, domain)
	if coLocate {
		return string(b) + "}~", ""
	}
	return string(b), "}"
}

// appendHead appends how keys begin that are not co-located.
func appendHead(b []byte, schema, prefix, domain string) []byte {
	for i := 0; i < len(prefix); i++ {
		if c := prefix[i]; c == '{' || c == '}' || c < 0x21 || c > 0x7e {
			b = appendEscape(b, c)
			continue
		}
		b = append(b, prefix[i])
	}
	b = append(b, schema...)
	return appendPart(append(b, '{'), domain)
}

// HeartbeatKey is where the sidecars that share a store count each other. No counter has a key so short.
func HeartbeatKey(prefix string) string {
	head, seal := keyHead(prefix, "sidecars", false)
	return head + seal + ":heartbeat"
}

// keyer builds keys. It is shared by all goroutines of a Set.
type keyer struct {
	macs *sync.Pool // of hash.Hash; nil without a secret
}

func newKeyer(secret []byte) keyer {
	if len(secret) == 0 {
		return keyer{}
	}
	kept := append([]byte(nil), secret...)
	return keyer{macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, kept) }}}
}

// keyValue is one value of an identity. A shared one is a pattern that stands in for whatever the client sent.
type keyValue struct {
	text   string
	shared bool
}

// appendValues appends the identity: each value as |part, or with a secret one part for all of them. No values append
// nothing, which differs from one empty value.
func (k keyer) appendValues(b []byte, values []keyValue) []byte {
	if len(values) == 0 {
		return b
	}
	if k.macs != nil {
		return k.appendMAC(append(b, '|'), values)
	}
	b = append(b, '|')
	from := len(b)
	for i, v := range values {
		if i > 0 {
			b = append(b, '|')
		}
		if v.shared {
			b = append(b, '*')
		}
		b = appendPart(b, v.text)
	}
	return appendSection(b, from)
}

// appendMAC appends 128 bits of an HMAC-SHA256 over the values, each with its length before it.
func (k keyer) appendMAC(b []byte, values []keyValue) []byte {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	from := len(b)
	for _, v := range values {
		mark := byte(0)
		if v.shared {
			mark = 1
		}
		b = binary.BigEndian.AppendUint64(append(b[:from], mark), uint64(len(v.text)))
		b = append(b, v.text...)
		mac.Write(b[from:])
	}
	b = mac.Sum(b[:from])
	var sum [16]byte
	copy(sum[:], b[from:])
	return base64.RawURLEncoding.AppendEncode(b[:from], sum[:])
}
