package rlsvc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
)

// The fields that are read, as tags: field number and wire type. A known number with another wire type is an unknown
// field, as it is for generated code.
const (
	requestDomain      = 1<<3 | uint64(protowire.BytesType)
	requestDescriptors = 2<<3 | uint64(protowire.BytesType)
	requestHits        = 3<<3 | uint64(protowire.VarintType)

	descriptorEntries  = 1<<3 | uint64(protowire.BytesType)
	descriptorLimit    = 2<<3 | uint64(protowire.BytesType)
	descriptorHits     = 3<<3 | uint64(protowire.BytesType)
	descriptorNegative = 4<<3 | uint64(protowire.VarintType)

	entryKey   = 1<<3 | uint64(protowire.BytesType)
	entryValue = 2<<3 | uint64(protowire.BytesType)

	limitRequests   = 1<<3 | uint64(protowire.VarintType)
	limitUnit       = 2<<3 | uint64(protowire.VarintType)
	limitMultiplier = 3<<3 | uint64(protowire.BytesType)

	wrapperValue = 1<<3 | uint64(protowire.VarintType)
)

// Bounds of what is kept for the next request. A message above them is rare, and keeping its memory would be a leak.
const (
	keepBytes   = 64 << 10
	keepEntries = 1 << 10
)

// Message is a RateLimitRequest, read from its wire bytes. Its memory is used again by the next ParseWire. Its strings
// share one copy of the message and may hold any bytes: Envoy forwards header values that are not UTF-8, and generated
// code, which refuses them, would let their sender past every limit.
type Message struct {
	Request descriptors.Request

	entries   []descriptors.Entry    // of all descriptors
	overrides []descriptors.Override // of all descriptors
	size      int                    // bytes of the message
}

// ParseWire reads a message and forgets the one before. It does not keep wire. Unknown fields are skipped; an error
// means that the bytes are no protobuf message at all.
func (m *Message) ParseWire(wire []byte) error {
	m.reset()
	m.size = len(wire)
	f := fields{wire: wire, text: string(wire), end: len(wire)}
	for f.next() {
		switch f.tag {
		case requestDomain:
			m.Request.Domain = f.str()
		case requestDescriptors:
			f.err = m.descriptor(f.sub())
		case requestHits:
			m.Request.Hits = uint64(uint32(f.number))
		}
	}
	if f.err != nil {
		return fmt.Errorf("reading a RateLimitRequest of %d bytes: %w", len(wire), f.err)
	}
	return nil
}

// reset empties the message. It clears what it held, so that a pooled message keeps no client's bytes alive.
func (m *Message) reset() {
	clear(m.entries)
	clear(m.Request.Descriptors)
	m.entries = m.entries[:0]
	m.overrides = m.overrides[:0]
	m.Request = descriptors.Request{Descriptors: m.Request.Descriptors[:0]}
	m.size = 0
}

// large reports whether the message's memory is too much to be kept.
func (m *Message) large() bool {
	return m.size > keepBytes || cap(m.entries) > keepEntries || cap(m.Request.Descriptors) > keepEntries
}

func (m *Message) descriptor(f fields) error {
	var d descriptors.Descriptor
	var o override
	first := len(m.entries)
	for f.next() {
		switch f.tag {
		case descriptorEntries:
			f.err = m.entry(f.sub())
		case descriptorLimit:
			o.given = true
			f.err = o.merge(f.sub())
		case descriptorHits:
			d.HitsGiven = true
			f.err = wrapped(f.sub(), &d.Hits)
		case descriptorNegative:
			d.NegativeHits = f.number != 0
		}
	}
	d.Entries = m.entries[first:len(m.entries):len(m.entries)]
	if o.given {
		m.overrides = append(m.overrides, o.override())
		d.Override = &m.overrides[len(m.overrides)-1]
	}
	m.Request.Descriptors = append(m.Request.Descriptors, d)
	return f.err
}

func (m *Message) entry(f fields) error {
	var e descriptors.Entry
	for f.next() {
		switch f.tag {
		case entryKey:
			e.Key = f.str()
		case entryValue:
			e.Value = f.str()
		}
	}
	m.entries = append(m.entries, e)
	return f.err
}

// override gathers a limit, which may come in several pieces that protobuf merges.
type override struct {
	given, multiplied bool
	count             uint32
	unit              int32
	multiplier        uint64
}

func (o *override) merge(f fields) error {
	for f.next() {
		switch f.tag {
		case limitRequests:
			o.count = uint32(f.number)
		case limitUnit:
			o.unit = int32(f.number)
		case limitMultiplier:
			o.multiplied = true
			f.err = wrapped(f.sub(), &o.multiplier)
		}
	}
	return f.err
}

// override returns the limit. A multiplier that was not sent is 1; one that was sent as 0 stays 0, which nobody can
// count by.
func (o *override) override() descriptors.Override {
	out := descriptors.Override{Count: o.count, Unit: overrideUnit(o.unit), Multiplier: 1}
	if o.multiplied {
		out.Multiplier = uint32(o.multiplier)
	}
	return out
}

// overrideUnit translates a type.v3.RateLimitUnit, which has no week.
func overrideUnit(number int32) descriptors.Unit {
	switch number {
	case 1, 2, 3, 4:
		return descriptors.Unit(number)
	case 5:
		return descriptors.Month
	case 6:
		return descriptors.Year
	}
	return descriptors.UnitUnknown
}

// wrapped reads a UInt32Value or UInt64Value on top of what was read before.
func wrapped(f fields, value *uint64) error {
	for f.next() {
		if f.tag == wrapperValue {
			*value = f.number
		}
	}
	return f.err
}

// fields walks over the fields of one message inside the wire bytes.
type fields struct {
	wire    []byte // the whole outermost message
	text    string // the same bytes, for substrings
	at, end int    // what is left of this message
	err     error

	tag      uint64 // of the field
	number   uint64 // value of a varint
	from, to int    // where the value of a length-delimited field lies
}

// next reads the next field and reports whether there was one. It ends at the first error.
func (f *fields) next() bool {
	if f.err != nil || f.at >= f.end {
		return false
	}
	tag, n := protowire.ConsumeVarint(f.wire[f.at:f.end])
	if n < 0 {
		return f.fail(n)
	}
	number := tag >> 3
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		f.err = fmt.Errorf("field number %d at byte %d is out of range", number, f.at)
		return false
	}
	f.at += n
	f.tag = tag
	n = f.value(f.wire[f.at:f.end])
	if n < 0 {
		return f.fail(n)
	}
	f.at += n
	return true
}

// value reads the value of the field and returns its length, or protowire's negative error code.
func (f *fields) value(b []byte) int {
	switch typ := protowire.Type(f.tag & 7); typ {
	case protowire.VarintType:
		number, n := protowire.ConsumeVarint(b)
		f.number = number
		return n
	case protowire.BytesType:
		part, n := protowire.ConsumeBytes(b)
		f.to = f.at + n
		f.from = f.to - len(part)
		return n
	default:
		return protowire.ConsumeFieldValue(protowire.Number(f.tag>>3), typ, b)
	}
}

func (f *fields) fail(code int) bool {
	f.err = fmt.Errorf("at byte %d: %w", f.at, protowire.ParseError(code))
	return false
}

// str is the value of a length-delimited field.
func (f *fields) str() string { return f.text[f.from:f.to] }

// sub walks over the value of a length-delimited field.
func (f *fields) sub() fields { return fields{wire: f.wire, text: f.text, at: f.from, end: f.to} }
