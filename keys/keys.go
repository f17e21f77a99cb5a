// Package keys is every name in Redis: how it is written, with escapes and hashes, and how it is read back.
package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
	"sync"
)

// docs/decisions/0003-keys.md specifies keys. In short:
//
//	<prefix>rl1:{<domain>|<value>|…}:<scope>:<rule>:<limit>:<algorithm>    scoped rules
//	<prefix>rl1:{<domain>|<value>|…}:<scope>:<rule>:penalty:pn             their penalties
//	<prefix>rl1:{<domain>|<name>}:<scope>:~<kind>:<limit>:<algorithm>      what a user, tenant or API key has of its own
//	<prefix>rl1:{<domain>|<value>|…}:<key>/<key>…:<limit>:<algorithm>      trees
//	<prefix>rl1:{<domain>|<value>|…}:<key>/<key>…:~<window in µs>:fw       overrides
//
// Where a client that a rule counts by is an address, ~ip follows the hash tag: an address and a user of that name
// never meet.
//
// A domain that is co-located closes its hash tag early: {<domain>}~|<value>|…:<scope>: and so on, in all of these.
//
// Parts are escaped so that none of the separators can be in one, which is why two different requests never meet.
const (
	counterSchema = "rl1:"
	maxPart       = 64 // bytes of a part as it came; longer ones are hashed
	// MaxSection is how many bytes all values, or a path, may have once escaped; longer ones are hashed.
	MaxSection = 512
)

// reserved holds the bytes that are escaped: separators, marks, and all bytes that are not printable ASCII.
var reserved = func() (set [256]bool) {
	for c := range set {
		set[c] = c < 0x21 || c > 0x7e
	}
	for _, c := range []byte("{}:|%#*~") {
		set[c] = true
	}
	return set
}()

// AppendEscape appends one byte as %XX.
func AppendEscape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}

// appendHash appends mark and 128 bits of the SHA-256 of b[from:], in place of b[from:].
func appendHash(b []byte, from int, mark string) []byte {
	sum := sha256.Sum256(b[from:])
	b = append(b[:from], mark...)
	return hex.AppendEncode(b, sum[:16])
}

// AppendPart appends one part of a key. A hashed part starts with the reserved #, so no escaped one equals it.
func AppendPart(b []byte, part string) []byte {
	from := len(b)
	if len(part) > maxPart {
		return appendHash(append(b, part...), from, "#")
	}
	for i := 0; i < len(part); i++ {
		if reserved[part[i]] {
			b = AppendEscape(b, part[i])
			continue
		}
		b = append(b, part[i])
	}
	return b
}

// AppendPathPart is AppendPart for one key of a path, in which / separates.
func AppendPathPart(b []byte, part string) []byte {
	from := len(b)
	if len(part) > maxPart {
		return appendHash(append(b, part...), from, "#")
	}
	for i := 0; i < len(part); i++ {
		if reserved[part[i]] || part[i] == '/' {
			b = AppendEscape(b, part[i])
			continue
		}
		b = append(b, part[i])
	}
	return b
}

// AppendSection ends a run of parts that began at from: one that grew too long is hashed as a whole. Parts hold no two
// # in a row, so ## distinguishes the two.
func AppendSection(b []byte, from int) []byte {
	if len(b)-from <= MaxSection {
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
	b := AppendPart(nil, name)
	if b[0] >= '0' && b[0] <= '9' {
		b = append(AppendEscape(nil, b[0]), b[1:]...)
	}
	return string(b)
}

// Tail is the end of a key: the limit and its algorithm.
func Tail(name string, place int, algorithm string) string {
	return ":" + limitPart(name, place) + ":" + algorithm
}

// Head is how all keys of a domain begin, and seal what follows the identity in them. The prefix is the operator's:
// only what would break the hash tag is escaped. Without co-location a : follows the tag, and with it a ~, also without
// an identity, so that keys of the two kinds never meet.
func Head(prefix, domain string, coLocate bool) (head, seal string) {
	return schemaHead(counterSchema, prefix, domain, coLocate)
}

// schemaHead is Head for keys of another schema.
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
			b = AppendEscape(b, c)
			continue
		}
		b = append(b, prefix[i])
	}
	b = append(b, schema...)
	return AppendPart(append(b, '{'), domain)
}

// Writer writes identities into keys. It is safe for concurrent use.
type Writer struct {
	macs *sync.Pool // of hash.Hash; nil without a secret
}

// NewWriter makes a Writer. With a secret it writes HMACs in place of identities.
func NewWriter(secret []byte) Writer {
	if len(secret) == 0 {
		return Writer{}
	}
	kept := append([]byte(nil), secret...)
	return Writer{macs: &sync.Pool{New: func() any { return hmac.New(sha256.New, kept) }}}
}

// Value is one value that a counter counts by. A shared one is a pattern in place of what the client sent.
type Value struct {
	Text   string
	Shared bool
}

// AppendValues appends the identity: each value as |part, or with a secret one part for all of them. No values append
// nothing, which differs from one empty value.
func (k Writer) AppendValues(b []byte, values []Value) []byte {
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
		if v.Shared {
			b = append(b, '*')
		}
		b = AppendPart(b, v.Text)
	}
	return AppendSection(b, from)
}

// appendMAC appends 128 bits of an HMAC-SHA256 over the values, each with its length before it.
func (k Writer) appendMAC(b []byte, values []Value) []byte {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	from := len(b)
	for _, v := range values {
		mark := byte(0)
		if v.Shared {
			mark = 1
		}
		b = binary.BigEndian.AppendUint64(append(b[:from], mark), uint64(len(v.Text)))
		b = append(b, v.Text...)
		mac.Write(b[from:])
	}
	b = mac.Sum(b[:from])
	var sum [16]byte
	copy(sum[:], b[from:])
	return base64.RawURLEncoding.AppendEncode(b[:from], sum[:])
}
