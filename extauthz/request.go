package extauthz

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/identity"
)

// The fields that are read, as tags. All of them are length-delimited; a known number with another wire type is an
// unknown field, as it is for generated code.
const (
	checkAttributes = 1<<3 | uint64(protowire.BytesType)

	attributesSource     = 1<<3 | uint64(protowire.BytesType)
	attributesRequest    = 4<<3 | uint64(protowire.BytesType)
	attributesExtensions = 10<<3 | uint64(protowire.BytesType)

	peerAddress   = 1<<3 | uint64(protowire.BytesType)
	peerPrincipal = 4<<3 | uint64(protowire.BytesType)

	addressSocket   = 1<<3 | uint64(protowire.BytesType)
	addressPipe     = 2<<3 | uint64(protowire.BytesType)
	addressInternal = 3<<3 | uint64(protowire.BytesType)
	socketAddress   = 2<<3 | uint64(protowire.BytesType)

	requestHTTP = 2<<3 | uint64(protowire.BytesType)

	httpMethod    = 2<<3 | uint64(protowire.BytesType)
	httpHeaders   = 3<<3 | uint64(protowire.BytesType)
	httpPath      = 4<<3 | uint64(protowire.BytesType)
	httpHost      = 5<<3 | uint64(protowire.BytesType)
	httpHeaderMap = 13<<3 | uint64(protowire.BytesType)

	headerMapHeaders = 1<<3 | uint64(protowire.BytesType)

	headerKey   = 1<<3 | uint64(protowire.BytesType)
	headerValue = 2<<3 | uint64(protowire.BytesType)
	headerRaw   = 3<<3 | uint64(protowire.BytesType)

	entryKey   = 1<<3 | uint64(protowire.BytesType)
	entryValue = 2<<3 | uint64(protowire.BytesType)
)

// domainExtension is the context extension that names the domain.
const domainExtension = "domain"

// Message is a CheckRequest, read from its wire bytes. Its memory is used again by the next ParseWire. Its strings
// share one copy of the message and may hold any bytes: generated code, which refuses what is not UTF-8, would leave
// the request to Envoy's failure mode.
type Message struct {
	Request descriptors.Request

	reader   wire.Reader
	evidence identity.Evidence
	subject  descriptors.Subject
	joined   []identity.Header // of the map: Envoy joins several values of a name by commas
	raw      []identity.Header // of header_map: one per occurrence
	isRaw    bool              // header_map holds anything
	entries  []descriptors.Entry
	socket   bool   // the source is a socket, not a pipe
	address  string // of that socket
	size     int    // bytes of the message
	share    door.Share
	domain   string // of requests whose route has none
}

// errExcess ends the reading of a message that brings too much. It does not leave ParseWire.
var errExcess = errors.New("more than a message may bring")

// Exceeds forgets the message before, and reports whether one of that many bytes is refused unread.
func (m *Message) Exceeds(size int) bool {
	m.reset()
	exceeds := m.share.Exceeds(size)
	if exceeds {
		m.excess()
	}
	return exceeds
}

// excess makes the request one that is refused because it brings too much. It has no subject.
func (m *Message) excess() {
	m.Request = descriptors.Request{Domain: cmp.Or(m.Request.Domain, m.domain), Excess: m.share.Excess}
}

// ParseWire reads a message and forgets the one before. It does not keep the bytes. Unknown fields are skipped; an
// error means that the bytes are not a protobuf message at all. Of one that brings too much the rest is not read, and
// its request has Excess alone.
func (m *Message) ParseWire(message []byte) error {
	if m.Exceeds(len(message)) {
		return nil
	}
	m.size = len(message)
	f := m.reader.Read(message)
	for f.Next() {
		if f.Tag == checkAttributes {
			f.Err = m.attributes(f.Sub())
		}
	}
	if m.share.Excess != "" {
		m.excess()
		return nil
	}
	if f.Err != nil {
		return fmt.Errorf("reading a CheckRequest of %d bytes: %w", len(message), f.Err)
	}
	m.assemble()
	return nil
}

// Asked returns what the message asks.
func (m *Message) Asked() *descriptors.Request { return &m.Request }

// End gives back what the message takes of the intake.
func (m *Message) End() { m.share.End() }

// Release empties the message for the next one, unless its memory is too much to be kept.
func (m *Message) Release() (keep bool) {
	if m.size > door.KeepBytes || cap(m.joined) > door.KeepEntries || cap(m.raw) > door.KeepEntries ||
		cap(m.entries) > door.KeepEntries {
		return false
	}
	m.reset()
	return true
}

// reset empties the message. It clears what it held, so that a pooled message keeps no client's bytes alive.
func (m *Message) reset() {
	clear(m.joined)
	clear(m.raw)
	clear(m.entries)
	m.joined, m.raw, m.entries = m.joined[:0], m.raw[:0], m.entries[:0]
	m.Request, m.evidence, m.subject = descriptors.Request{}, identity.Evidence{}, descriptors.Subject{}
	m.isRaw, m.socket, m.address, m.size = false, false, "", 0
}

// assemble makes the request of what was read.
func (m *Message) assemble() {
	m.Request.Domain = cmp.Or(m.Request.Domain, m.domain)
	m.evidence.Path = m.subject.Path
	m.evidence.Headers = m.joined
	if m.isRaw {
		m.evidence.Headers = m.raw
	}
	if m.socket {
		m.evidence.Peer = parseAddress(m.address)
	}
	m.subject.Entries = m.entries
	m.Request.Evidence = &m.evidence
	m.Request.Subject = &m.subject
}

// parseAddress reads the peer's address. A zone would split one client into many and is dropped. What is not an address
// is invalid, as for a pipe.
func parseAddress(text string) netip.Addr {
	text, _, _ = strings.Cut(text, "%")
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}

// attributes, and all that it calls, read on top of what was read before: a message may come in pieces. The one place
// where this differs from generated code is a map with a key that comes twice, of which both are kept: a credential
// that is sent twice must not hide behind the other.
func (m *Message) attributes(f wire.Fields) error {
	for f.Next() {
		switch f.Tag {
		case attributesSource:
			f.Err = m.source(f.Sub())
		case attributesRequest:
			f.Err = m.request(f.Sub())
		case attributesExtensions:
			f.Err = m.extension(f.Sub())
		}
	}
	return f.Err
}

func (m *Message) source(f wire.Fields) error {
	for f.Next() {
		switch f.Tag {
		case peerAddress:
			f.Err = m.sourceAddress(f.Sub())
		case peerPrincipal:
			m.evidence.Principal = f.Text()
		}
	}
	return f.Err
}

// sourceAddress reads an Address, of which the last kind counts.
func (m *Message) sourceAddress(f wire.Fields) error {
	for f.Next() {
		switch f.Tag {
		case addressSocket:
			if !m.socket {
				m.socket, m.address = true, ""
			}
			f.Err = last(f.Sub(), socketAddress, &m.address)
		case addressPipe, addressInternal:
			m.socket = false
		}
	}
	return f.Err
}

func (m *Message) request(f wire.Fields) error {
	for f.Next() {
		if f.Tag == requestHTTP {
			f.Err = m.http(f.Sub())
		}
	}
	return f.Err
}

func (m *Message) http(f wire.Fields) error {
	for f.Next() {
		switch f.Tag {
		case httpMethod:
			m.subject.Method = f.Text()
		case httpPath:
			m.subject.Path = f.Text()
		case httpHost:
			m.subject.Host = f.Text()
		case httpHeaders:
			f.Err = m.header(f.Sub())
		case httpHeaderMap:
			f.Err = m.headerMap(f.Sub())
		}
	}
	return f.Err
}

func (m *Message) header(f wire.Fields) error {
	if !m.share.Add(door.EntryBytes) {
		return errExcess
	}
	var h identity.Header
	var err error
	h.Name, h.Value, err = entry(f)
	m.joined = addHeader(m.joined, h)
	return err
}

func (m *Message) headerMap(f wire.Fields) error {
	for f.Next() {
		if f.Tag != headerMapHeaders {
			continue
		}
		if !m.share.Add(door.EntryBytes) {
			return errExcess
		}
		m.isRaw = true
		var h identity.Header
		h, f.Err = rawHeader(f.Sub())
		m.raw = addHeader(m.raw, h)
	}
	return f.Err
}

// entry reads an entry of a protobuf map.
func entry(f wire.Fields) (key, value string, err error) {
	for f.Next() {
		switch f.Tag {
		case entryKey:
			key = f.Text()
		case entryValue:
			value = f.Text()
		}
	}
	return key, value, f.Err
}

// rawHeader reads a HeaderValue, whose value is in one of two fields.
func rawHeader(f wire.Fields) (identity.Header, error) {
	var h identity.Header
	var raw string
	for f.Next() {
		switch f.Tag {
		case headerKey:
			h.Name = f.Text()
		case headerValue:
			h.Value = f.Text()
		case headerRaw:
			raw = f.Text()
		}
	}
	if raw != "" {
		h.Value = raw
	}
	return h, f.Err
}

// addHeader adds a header under its name in lower case. Pseudo-headers are not evidence of the client; the attributes
// hold the same facts.
func addHeader(headers []identity.Header, h identity.Header) []identity.Header {
	if strings.HasPrefix(h.Name, ":") {
		return headers
	}
	h.Name = lower(h.Name)
	return append(headers, h)
}

// lower puts ASCII letters in lower case and leaves all other bytes as they are. Envoy sends names in lower case.
func lower(name string) string {
	for i := range len(name) {
		if 'A' <= name[i] && name[i] <= 'Z' {
			return lowered(name)
		}
	}
	return name
}

func lowered(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// extension reads one context extension: the domain, or an entry that conditions can name.
func (m *Message) extension(f wire.Fields) error {
	if !m.share.Add(door.EntryBytes) {
		return errExcess
	}
	var e descriptors.Entry
	var err error
	e.Key, e.Value, err = entry(f)
	if e.Key == domainExtension {
		m.Request.Domain = e.Value
		return err
	}
	m.entries = append(m.entries, e)
	return err
}

// last reads the last text with that tag.
func last(f wire.Fields, tag uint64, text *string) error {
	for f.Next() {
		if f.Tag == tag {
			*text = f.Text()
		}
	}
	return f.Err
}
