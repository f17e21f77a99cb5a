package rlsvc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/wire"
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

// Message is a RateLimitRequest, read from its wire bytes. Its memory is used again by the next ParseWire. Its strings
// share one copy of the message and may hold any bytes: Envoy forwards header values that are not UTF-8, and generated
// code, which refuses them, would let their sender past every limit.
type Message struct {
	Request descriptors.Request

	reader    wire.Reader
	entries   []descriptors.Entry    // of all descriptors
	overrides []descriptors.Override // of all descriptors
	size      int                    // bytes of the message
	share     door.Share             // of what messages may bring
}

// errExcess ends the reading of a message that brings too much. It does not leave ParseWire.
var errExcess = errors.New("more than a message may bring")

// Exceeds forgets the message before, and reports whether one of that many bytes is refused unread.
func (m *Message) Exceeds(size int) bool {
	m.reset()
	exceeds := m.share.Exceeds(size)
	m.Request.Excess = m.share.Excess
	return exceeds
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
		switch f.Tag {
		case requestDomain:
			m.Request.Domain = f.Text()
		case requestDescriptors:
			f.Err = m.descriptor(f.Sub())
		case requestHits:
			m.Request.Hits = uint64(uint32(f.Number))
		}
	}
	if m.share.Excess != "" {
		unread := 0
		if m.share.Excess == door.ExcessDescriptors {
			unread = len(m.Request.Descriptors) + 1 + descriptorsLeft(&f)
		}
		m.Request = descriptors.Request{Excess: m.share.Excess, Unread: unread}
		return nil
	}
	if f.Err != nil {
		return fmt.Errorf("reading a RateLimitRequest of %d bytes: %w", len(message), f.Err)
	}
	return nil
}

// descriptorsLeft counts the descriptors in the rest of a message, without reading them.
func descriptorsLeft(f *wire.Fields) (count int) {
	f.Err = nil
	for f.Next() {
		if f.Tag == requestDescriptors {
			count++
		}
	}
	return count
}

// Asked returns what the message asks.
func (m *Message) Asked() *descriptors.Request { return &m.Request }

// End gives back what the message takes of the intake.
func (m *Message) End() { m.share.End() }

// Release empties the message for the next one, unless its memory is too much to be kept.
func (m *Message) Release() (keep bool) {
	if m.size > door.KeepBytes || cap(m.entries) > door.KeepEntries || cap(m.Request.Descriptors) > door.KeepEntries {
		return false
	}
	m.reset()
	return true
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

func (m *Message) descriptor(f wire.Fields) error {
	if !m.share.AddDescriptor() {
		return errExcess
	}
	var d descriptors.Descriptor
	var o override
	first := len(m.entries)
	for f.Next() {
		switch f.Tag {
		case descriptorEntries:
			f.Err = m.entry(f.Sub())
		case descriptorLimit:
			o.given = true
			f.Err = o.merge(f.Sub())
		case descriptorHits:
			d.HitsGiven = true
			f.Err = wrapped(f.Sub(), &d.Hits)
		case descriptorNegative:
			d.NegativeHits = f.Number != 0
		}
	}
	d.Entries = m.entries[first:len(m.entries):len(m.entries)]
	if o.given {
		m.overrides = append(m.overrides, o.override())
		d.Override = &m.overrides[len(m.overrides)-1]
	}
	m.Request.Descriptors = append(m.Request.Descriptors, d)
	return f.Err
}

func (m *Message) entry(f wire.Fields) error {
	if !m.share.Add(door.EntryBytes) {
		return errExcess
	}
	var e descriptors.Entry
	for f.Next() {
		switch f.Tag {
		case entryKey:
			e.Key = f.Text()
		case entryValue:
			e.Value = f.Text()
		}
	}
	m.entries = append(m.entries, e)
	return f.Err
}

// override gathers a limit, which may come in several pieces that protobuf merges.
type override struct {
	given, multiplied bool
	count             uint32
	unit              int32
	multiplier        uint64
}

func (o *override) merge(f wire.Fields) error {
	for f.Next() {
		switch f.Tag {
		case limitRequests:
			o.count = uint32(f.Number)
		case limitUnit:
			o.unit = int32(f.Number)
		case limitMultiplier:
			o.multiplied = true
			f.Err = wrapped(f.Sub(), &o.multiplier)
		}
	}
	return f.Err
}

// override returns the limit. A multiplier that was not sent is 1; one that was sent as 0 stays 0, which no store can
// count by.
func (o *override) override() descriptors.Override {
	out := descriptors.Override{Count: o.count, Unit: overrideUnit(o.unit), Multiplier: 1}
	if o.multiplied {
		out.Multiplier = uint32(o.multiplier)
	}
	return out
}

// overrideUnit translates a type.v3.RateLimitUnit, which lacks the week.
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
func wrapped(f wire.Fields, value *uint64) error {
	for f.Next() {
		if f.Tag == wrapperValue {
			*value = f.Number
		}
	}
	return f.Err
}
